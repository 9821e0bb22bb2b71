// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An address names its device: allocations and globals of three devices never
// overlap, and in the host each lies in a mapping that nobody can touch, so that
// no host address is ever the same.
//
// RUN: %clang %s -o %t
// RUN: %run3 %t
// REQUIRES: plugin

#include "offload.h"

#pragma omp declare target
int global[1000];
#pragma omp end declare target

enum { DEVICES = 3, EACH = 6, ALL = DEVICES * EACH };
static struct range {
  uintptr_t begin, end;
} ranges[ALL];
static int used;

static void add(void *p, size_t n) {
  CHECK(p != NULL);
  ranges[used].begin = (uintptr_t)p;
  ranges[used++].end = (uintptr_t)p + n;
}

/// Whether the host has this address reserved, with no access.
static int reserved(uintptr_t address) {
  FILE *maps = fopen("/proc/self/maps", "r");
  uintptr_t begin, end;
  char access[8], line[1024];
  int good = 0;
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3)
      good |= begin <= address && address < end && !strncmp(access, "---", 3);
  fclose(maps);
  return good;
}

int main(void) {
  static const size_t sizes[EACH - 1] = {1, 100, 4096, 100001, 64 << 20};
  need_devices(DEVICES);
  for (int d = 0; d < DEVICES; ++d) {
    void *there = NULL;
#pragma omp target map(from : there) device(d)
    there = global;
    add(there, sizeof global);
    for (int i = 0; i < EACH - 1; ++i)
      add(omp_target_alloc(sizes[i], d), sizes[i]);
  }
  for (int i = 0; i < ALL; ++i) {
    CHECK(reserved(ranges[i].begin) && reserved(ranges[i].end - 1));
    for (int j = 0; j < i; ++j)
      CHECK(ranges[i].end <= ranges[j].begin ||
            ranges[j].end <= ranges[i].begin);
  }
  return 0;
}
