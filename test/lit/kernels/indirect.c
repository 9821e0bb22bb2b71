// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels call functions of `declare target indirect` through pointers that the program set: in a
// mapped structure, and as an argument.
//
// Compilers up to 17 tell the runtime of no such function.
// UNSUPPORTED: llvm14, llvm15, llvm16, llvm17
// Accelerators refuse such images.
// UNSUPPORTED: accelerators
//
// RUN: %clang -fopenmp-version=51 %s -o %t
// RUN: %run2 %t
//
// Functions that follow each other without a gap.
// RUN: %clang -fopenmp-version=51 -Os %s -o %t-small
// RUN: %run2 %t-small

#include "offload.h"

#pragma omp begin declare target indirect
int add(int a, int b) { return a + b; }
int subtract(int a, int b) { return a - b; }
#pragma omp end declare target

typedef int (*Function)(int, int);

int main(int argc, char **argv) {
  (void)argv;
  Function both[2] = {argc > 9 ? subtract : add, argc > 9 ? add : subtract};
  Function one = both[0];
  for (int device = 0; device < omp_get_num_devices(); ++device) {
    int sum = 0, difference = 0, again = 0;
#pragma omp target map(to : both) map(from : sum, difference, again) device(device)
    {
      sum = both[0](40, 2);
      difference = both[1](40, 2);
      again = one(1, 2);
    }
    CHECK(sum == 42 && difference == 38 && again == 3);
  }
  return 0;
}
