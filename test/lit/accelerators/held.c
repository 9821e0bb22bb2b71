// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a region prints arrives, also where it looks like an error of libomptarget's, or does not end its line. So do such
// errors if nothing fails: an allocation that is tried again with less.
//
// REQUIRES: llvm16
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: %make-standin
// RUN: %standin STANDIN_FAIL=alloc:1 %run1 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: FileCheck %s --input-file %t.err --check-prefix=AGAIN
//
// CHECK-DAG: {{^}}first line
// CHECK-DAG: {{^}}Libomptarget error: of the region
// CHECK-DAG: {{^}}last line
// CHECK-DAG: {{^}}CUDA error: without an end
// AGAIN: {{^}}"PluginInterface" error: alloc fails, as the test asked

#include "offload.h"

int main(void) {
#pragma omp target
  dprintf(STDERR_FILENO, "first line\nLibomptarget error: of the region\nlast line\n");
#pragma omp target
  dprintf(STDERR_FILENO, "CUDA error: without an end");
  return 0;
}
