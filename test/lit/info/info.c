// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// LIBOMPTARGET_INFO and LIBOMPTARGET_DEBUG make the plugin tell what it does,
// for each device, and change no result.
//
// RUN: %clang %s -o %t
// RUN: env LIBOMPTARGET_INFO=16 %run2 %t > %t.out 2>&1
// RUN: FileCheck %s --input-file %t.out --check-prefix=INFO
// RUN: env LIBOMPTARGET_INFO=-1 %run2 %t > %t.out 2>&1
// RUN: FileCheck %s --input-file %t.out --check-prefix=INFO
// RUN: env LIBOMPTARGET_DEBUG=1 %run2 %t > %t.out 2>&1
// RUN: FileCheck %s --input-file %t.out --check-prefix=DEBUG
// RUN: env LIBOMPTARGET_INFO=1 %run2 %t > %t.out 2>&1
// RUN: FileCheck %s --input-file %t.out --check-prefix=NEITHER
//
// INFO-DAG: {{^}}MPI device 0 info: {{.+}}
// INFO-DAG: {{^}}MPI device 1 info: {{.+}}
// DEBUG:    {{^}}TARGET MPI RTL --> {{.+}}
// NEITHER-NOT: MPI device
// NEITHER-NOT: TARGET MPI RTL

#include "offload.h"

int main(void) {
  need_devices(2);
  return 0;
}
