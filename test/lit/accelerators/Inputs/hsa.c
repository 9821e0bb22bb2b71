// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A driver of AMD (HSA) with a processor and STANDIN_AMD accelerators (by default two) of architecture gfx90a.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint64_t handle;
} Handle;

// What can be asked of an agent, and of a pool.
enum { NAME = 0, DEVICE = 17, PRODUCT = 0xa009, AVAILABLE = 0xa015, SEGMENT = 0, SIZE = 2 };

static const size_t MEMORY = (size_t)1 << 30;

int hsa_init(void) { return 0; }

int hsa_system_get_info(int what, uint16_t *version) {
  *version = what == 0;
  return 0;
}

int hsa_iterate_agents(int (*each)(Handle, void *), void *data) {
  const char *number = getenv("STANDIN_AMD");
  uint64_t all = number ? strtoull(number, NULL, 10) : 2;
  for (uint64_t agent = 0; agent <= all; ++agent)
    each((Handle){agent}, data);
  return 0;
}

int hsa_agent_get_info(Handle agent, int what, void *value) {
  switch (what) {
  case NAME:
    strcpy(value, "gfx90a");
    return 0;
  case DEVICE:
    *(uint32_t *)value = agent.handle > 0;
    return 0;
  case PRODUCT:
    strcpy(value, "Stand-in");
    return 0;
  case AVAILABLE:
    *(uint64_t *)value = MEMORY;
    return 0;
  }
  return 1;
}

int hsa_amd_agent_iterate_memory_pools(Handle agent, int (*each)(Handle, void *), void *data) {
  return each(agent, data);
}

int hsa_amd_memory_pool_get_info(Handle pool, int what, void *value) {
  (void)pool;
  if (what == SEGMENT)
    *(int *)value = 0;
  else if (what == SIZE)
    *(size_t *)value = MEMORY;
  return 0;
}
