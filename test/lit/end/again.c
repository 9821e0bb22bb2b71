// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Jobs start and end well, and not only most of them: with one device, with four, with
// workers. (--param thorough=1 tries that more often.)
//
// Worker processes can't have accelerators.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %again %run1 --timeout 60 %t 1
// RUN: %again %run --ranks hdddd --timeout 60 %t 4
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %again %run2 --timeout 60 %t 4
// REQUIRES: plugin

#include "offload.h"

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(atoi(argv[1]));
  int sum = 0;
  for (int device = 0; device < omp_get_num_devices(); ++device) {
#pragma omp target device(device) map(tofrom : sum)
    ++sum;
  }
  CHECK(sum == omp_get_num_devices());
  return 0;
}
