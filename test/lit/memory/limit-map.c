// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A map clause that needs more memory than the device has ends the program with
// an error line: no crash, no hang, no wrong result.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_MEMORY=16M %run1 --rc fail %t > %t.out 2> %t.err
// RUN: %line some-error %t.err "device 0" "rank 1" %hostname
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: begin
// CHECK-NOT: after

#include "offload.h"

static char big[32 << 20];

int main(void) {
  need_devices(1);
  puts("begin");
  fflush(stdout);
#pragma omp target map(tofrom : big)
  big[0] = 1;
  puts("after");
  return 0;
}
