// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Of their own, plugin and devices print nothing.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out --allow-empty
// RUN: FileCheck %s --input-file %t.err --allow-empty
// RUN: %run --ranks hd %t 1 > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out --allow-empty
// RUN: FileCheck %s --input-file %t.err --allow-empty
//
// CHECK-NOT: {{.}}

#include "offload.h"

int main(int argc, char **argv) {
  (void)argv;
  need_devices(argc > 1 ? 1 : 2);
  return 0;
}
