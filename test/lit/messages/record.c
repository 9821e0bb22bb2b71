// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With LIBOMPTARGET_RECORD set, LLVM 18 asks every plugin to record kernels. This plugin reports
// that it cannot, and the program runs on.
//
// REQUIRES: plugin, llvm18
// RUN: %clang %s -o %t
// RUN: env LIBOMPTARGET_RECORD=1 %run1 %t 2> %t.err
// RUN: %line error %t.err LIBOMPTARGET_RECORD "device 0"

#include "offload.h"

int main(void) {
  need_devices(1);
  return 0;
}
