// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text that begins with a NUL byte comes out whole and does not stop what follows.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t > %t.out
// RUN: tr '\000' '0' < %t.out | FileCheck %s
//
// CHECK: 0one
// CHECK: two
// CHECK: {{^}}host end

#include "offload.h"

int main(void) {
  need_devices(1);
#pragma omp target device(0)
  if (write(1, "\0one\n", 5) != 5)
    abort();
  usleep(200000); // the device is idle
#pragma omp target device(0)
  printf("two\n");
  printf("host end\n");
  return 0;
}
