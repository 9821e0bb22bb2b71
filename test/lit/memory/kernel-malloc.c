// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that a kernel got from its own malloc can be copied from and to.
//
// What a kernel allocates on an accelerator can't be copied.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %run1 %t

#include "offload.h"

static void both_ways(size_t n) {
  int host = omp_get_initial_device();
  unsigned char *there = NULL, *here = malloc(n);
#pragma omp target map(from : there)
  {
    there = malloc(n);
    fill(there, n, 1);
  }
  CHECK(omp_target_memcpy(here, there, n, 0, 0, host, 0) == 0);
  CHECK(differences(here, n, 1) == 0);
  fill(here, n, 2);
  CHECK(omp_target_memcpy(there, here, n, 0, 0, 0, host) == 0);
  size_t wrong = 0;
#pragma omp target is_device_ptr(there) map(from : wrong)
  {
    wrong = differences(there, n, 2);
    free(there);
  }
  CHECK(wrong == 0);
  free(here);
}

int main(void) {
  need_devices(1);
  both_ways(10);
  both_ways(5000);
  both_ways(100001);
  both_ways((8 << 20) + 3);
  return 0;
}
