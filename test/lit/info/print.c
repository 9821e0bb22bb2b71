// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program can have what is known of its devices printed, in order with its own
// output.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t > %t.out
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: one
// CHECK: Rank{{ +}}0
// CHECK: Host name{{ +.+}}
// CHECK: two
// CHECK: Rank{{ +}}1
// CHECK: Memory of the device{{ +}}{{[0-9]+}} MiB
// CHECK: end

#include "offload.h"

int __tgt_print_device_info(long device); // libomptarget's

int main(void) {
  need_devices(2);
  puts("one");
  CHECK(__tgt_print_device_info(0));
  puts("two");
  CHECK(__tgt_print_device_info(1));
  puts("end");
  return 0;
}
