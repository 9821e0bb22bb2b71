// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Jobs start and end well, and not only most of them: with one device, with four, with
// workers, also where the program ends before its devices do. (--param starts=100 tries
// that more often.)
//
// RUN: %clang %s -o %t
// RUN: %again %run1 --timeout 40 %t
// RUN: %again %run --ranks hdddd --timeout 40 %t
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %again %run2 --timeout 40 %t
// REQUIRES: plugin

#include "offload.h"

int main(void) {
  need_devices(1);
  int sum = 0;
  for (int device = 0; device < omp_get_num_devices(); ++device) {
#pragma omp target device(device) map(tofrom : sum)
    ++sum;
  }
  if (sum != omp_get_num_devices())
    return 2;
  return 0;
}
