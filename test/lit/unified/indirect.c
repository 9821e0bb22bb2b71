// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A function that is not indirect is called beside some that are: both by their addresses in the program, on one page.
//
// UNSUPPORTED: llvm14, llvm15, llvm16, llvm17
// XFAIL: llvm23
//
// RUN: %clang -fopenmp-version=51 %s -o %t
// RUN: env OMPTARGET_MPI_UNIFIED=on %run2 %t
// RUN: %clang -fopenmp-version=51 -Os %s -o %t-small
// RUN: env OMPTARGET_MPI_UNIFIED=on %run2 %t-small
// REQUIRES: plugin

#include "offload.h"

#pragma omp begin declare target indirect
int add(int a, int b) { return a + b; }
int subtract(int a, int b) { return a - b; }
#pragma omp end declare target
#pragma omp begin declare target
int multiply(int a, int b) { return a * b; }
#pragma omp end declare target

typedef int (*Function)(int, int);

int main(int argc, char **argv) {
  (void)argv;
  int swap = argc > 9;
  Function two[2] = {swap ? subtract : add, swap ? add : subtract}, other = swap ? add : multiply;
  for (int device = 0; device < omp_get_num_devices(); ++device) {
    int results[3] = {0};
#pragma omp target map(to : two) map(from : results) firstprivate(other) device(device)
    {
      results[0] = two[0](40, 2);
      results[1] = two[1](40, 2);
      results[2] = other(40, 2);
    }
    CHECK(results[0] == 42 && results[1] == 38 && results[2] == 80);
  }
  return 0;
}
