// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Three, four and eight devices behind each rank: the image reaches all of them, from one to the
// next within a rank and between ranks, and each computes its own. Several times: which device
// asks first is a matter of luck.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=4 %run1 --timeout 60 %t 4
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=4 %run1 --timeout 60 %t 4
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=4 %run1 --timeout 60 %t 4
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=4 %run1 --timeout 60 %t 4
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=3 %run2 --timeout 60 %t 6
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=3 %run2 --timeout 60 %t 6
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=3 %run2 --timeout 60 %t 6
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=8 %run1 --timeout 60 %t 8
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=8 %run2 --timeout 60 %t 16

#include "offload.h"

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int devices = atoi(argv[1]);
  need_devices(devices);
  for (int d = 0; d < devices; ++d) {
    int x = d;
#pragma omp target map(tofrom : x) device(d)
    x = 2 * x + 1;
    CHECK(x == 2 * d + 1);
  }
  return 0;
}
