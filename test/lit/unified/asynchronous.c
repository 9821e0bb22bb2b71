// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With OMPTARGET_MPI_ASYNC=1 a kernel that may use the program's memory is waited for: what it has written is there when its
// construct ends.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_ASYNC=1 OMPTARGET_MPI_UNIFIED=on %run1 %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "check.h"
#include <omp.h>

enum { N = 1 << 20 };

int main(void) {
  CHECK(omp_get_num_devices() == 1);
  long *p = calloc(N, sizeof *p);
  for (int round = 1; round <= 50; ++round) {
    // Nothing is mapped, and nothing comes back but by the pointer.
#pragma omp target is_device_ptr(p) firstprivate(round)
    for (int i = 0; i < N; ++i)
      p[i] += round;
    for (int i = 0; i < N; ++i)
      CHECK(p[i] == (long)round * (round + 1) / 2);
  }
  free(p);
  return 0;
}
