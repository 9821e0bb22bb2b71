// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A build without worker processes ends a job that asks for them, and says why.
//
// REQUIRES: plugin
// UNSUPPORTED: workers
// Worker processes can't have accelerators.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %run1 %t
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 --rc fail %t 2> %t.err
// RUN: env OMPTARGET_MPI_SPARES=1 %run1 --rc fail %t 2>> %t.err
// RUN: FileCheck %s < %t.err
// CHECK-COUNT-2: this build has neither several devices behind a rank nor spares

#include "offload.h"

int main(void) {
  need_devices(1);
#pragma omp target
  {
  }
  return 0;
}
