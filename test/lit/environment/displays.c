// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tool of the user (OMPT) runs in the program alone, and only the program displays its settings: devices do neither, nor
// do workers. Devices do display where the threads of regions run (OMP_DISPLAY_AFFINITY).
//
// DEFINE: %{job} = env OMP_TOOL_LIBRARIES=%t.so OMP_TOOL_VERBOSE_INIT=stderr OMP_DISPLAY_ENV=true KMP_SETTINGS=1 KMP_VERSION=1 OMP_DISPLAY_AFFINITY=true OMP_AFFINITY_FORMAT="affinity of thread %%n"
// DEFINE: %{check} = grep -E "^(tool:|-+ START|LLVM OMP version|User settings|OPENMP DISPLAY.*BEGIN|affinity)" %t.out | env LC_ALL=C sort | uniq -c | FileCheck %s
// RUN: %plain-clang -shared -fPIC %S/Inputs/tool.c -o %t.so
// RUN: %clang %s -o %t
// RUN: %{job} %run2 %t > %t.out 2>&1
// RUN: %{check}
// RUN: %{job} OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 %t > %t.out 2>&1
// RUN: %{check}
// CHECK: 1 ----- START LOGGING
// CHECK-NEXT: 1 LLVM OMP version
// CHECK-NEXT: 1 OPENMP DISPLAY ENVIRONMENT BEGIN
// CHECK-NEXT: 1 User settings
// CHECK-NEXT: 2 affinity of thread 0
// CHECK-NEXT: 2 affinity of thread 1
// CHECK-NEXT: 1 tool: begin
// CHECK-NEXT: 1 tool: end

#include "offload.h"

int main(void) {
  need_devices(2);
  for (int device = 0; device < 2; ++device) {
    int n = 0;
#pragma omp target map(from : n) device(device)
#pragma omp parallel num_threads(2)
#pragma omp master
    n = omp_get_num_threads();
    CHECK(n == 2);
  }
  return 0;
}
