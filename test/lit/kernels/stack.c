// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel has as much stack as a main thread: 4 MiB of local variables, also
// while another kernel runs.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t
// REQUIRES: plugin

#include "offload.h"

int main(void) {
  need_devices(1);
  int wrong = 0;
#pragma omp parallel num_threads(3) reduction(+ : wrong)
  for (int round = 0; round < 5; ++round) {
    size_t there = 1;
#pragma omp target map(tofrom : there)
    {
      unsigned char local[4 << 20];
      fill(local, sizeof local, 5);
      there = differences(local, sizeof local, 5);
    }
    wrong += there != 0;
  }
  CHECK(wrong == 0);
  return 0;
}
