// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program can have what is known of its devices printed. (From LLVM 19 on in the
// order of LLVM's own streams.)
//
// RUN: %clang %s -o %t
// RUN: %run2 %t > %t.out
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK-DAG: Rank{{ +}}1
// CHECK-DAG: Rank{{ +}}2
// CHECK-DAG: Host name{{ +.+}}
// CHECK-DAG: Memory of the device{{ +}}{{[0-9]+}} MiB

#include "offload.h"

int __tgt_print_device_info(long device); // libomptarget's

int main(void) {
  need_devices(2);
  CHECK(__tgt_print_device_info(0));
  CHECK(__tgt_print_device_info(1));
  return 0;
}
