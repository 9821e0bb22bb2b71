// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Without address randomisation the program and its devices have their libraries
// at the same addresses; every image must then be moved to where the program has
// nothing, and device addresses are still no host addresses.
//
// The libomptarget of LLVM 18 loads an image on an accelerator once, wherever that is.
// UNSUPPORTED: accelerators && llvm18
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_UNIFIED=off setarch -R %run2 %t

#include "offload.h"

#pragma omp declare target
int global = 5;
#pragma omp end declare target

int main(void) {
  need_devices(2);
  for (int d = 0; d < 2; ++d) {
    int sum = 1;
#pragma omp target map(tofrom : sum) device(d)
    sum += global;
    CHECK(sum == 6);
    global = 7;
#pragma omp target update to(global) device(d)
#pragma omp target map(tofrom : sum) device(d)
    sum += global;
    CHECK(sum == 13);
    global = 5;
  }
  return 0;
}
