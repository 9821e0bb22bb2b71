// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region knows on which device it runs, and that this is not the program's own process.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t
// To a compiler of OpenMP 4.5 both are functions of the library.
// RUN: %clang -fopenmp-version=45 %s -o %t.45
// RUN: %run2 %t.45
// REQUIRES: plugin
// UNSUPPORTED: accelerators

#include "offload.h"

int main(void) {
  need_devices(2);
  for (int device = 0; device < 2; ++device) {
    int number = -1, is_host = -1;
#pragma omp target device(device) map(from : number, is_host)
    {
      number = omp_get_device_num();
      is_host = omp_is_initial_device();
    }
    CHECK(number == device && !is_host);
  }
  CHECK(omp_get_device_num() == omp_get_initial_device());
  return 0;
}
