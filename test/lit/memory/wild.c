// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies from and to wild device addresses fail with an error line each, the
// device lives on, and no byte of the host's is written: nowhere, an address
// that no x86-64 machine has, a range whose second page is protected, one that
// begins in an allocation and leaves the device's memory, and one that wraps.
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: %run2 %t > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: grep -c "omptarget-mpi: error: .*device 1.*rank 2" %t.err | FileCheck %s --check-prefix=COUNT
// REQUIRES: plugin
//
// CHECK: omptarget-mpi: error: {{.*}}0x10
// CHECK-NOT: wrong:
// COUNT: {{^}}11{{$}}

#include "offload.h"
#include <sys/mman.h>

static char here[8192];

static void *map_two_pages(void) {
  char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
  mprotect(p + 4096, 4096, PROT_NONE);
  return p;
}

/// Both directions fail, the host's bytes stay, and the device still works.
static void refuse(void *wild, size_t n, int writes) {
  int host = omp_get_initial_device(), alive = 0;
  if (writes)
    CHECK(omp_target_memcpy(wild, here, n, 0, 0, 1, host) != 0);
  CHECK(omp_target_memcpy(here, wild, n, 0, 0, host, 1) != 0);
  if (wild != NULL)
    for (int i = 4096; i < 8192; ++i)
      CHECK(here[i] == 7);
#pragma omp target map(tofrom : alive) device(1)
  alive = 1;
  CHECK(alive);
}

int main(void) {
  need_devices(2);
  memset(here, 7, sizeof here);
  refuse((void *)0x10, 8, 1);
  refuse((void *)0x10, 8192, 1);
  refuse((void *)0xdeadbeef00000000, 100, 1);
  void *half = NULL;
#pragma omp target map(from : half) device(1)
  half = map_two_pages();
  refuse(half, 8192, 1);
  // These never get so far as to read the host's buffer.
  void *some = omp_target_alloc(64, 1);
  refuse(some, (size_t)1 << 46, 1);
  refuse(some, SIZE_MAX - 100, 0);
  return 0;
}
