// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Statistics and the trace have an accelerator's kernels, and the copies to and from it that are no part of a launch.
//
// REQUIRES: llvm16
// RUN: %clang %s -o %t
// RUN: %make-standin
// RUN: rm -f %t.json && %standin env OMPTARGET_MPI_STATS=1 OMPTARGET_MPI_TRACE=%t.json %run1 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err --check-prefix=STATS
// RUN: %trace %t.json > %t.out
// RUN: FileCheck %s --input-file %t.out
//
// STATS:      {{^ regions +4 +[0-9.]+ (us|ms)$}}
// STATS-NEXT: {{^ host to device +6 +1048692 +[0-9.]+ (us|ms)$}}
// STATS-NEXT: {{^ device to host +6 +1048692 +[0-9.]+ (us|ms)$}}
// STATS-NEXT: to other devices
// STATS-NEXT: from other devices
// STATS-NEXT: {{^ within the device +1 +4096 +[0-9.]+ (us|ms)$}}
// STATS-NEXT: {{^ to its accelerator +2 +1048676 +[0-9.]+ (us|ms)$}}
// STATS-NEXT: {{^ from its accelerator +2 +1048676 +[0-9.]+ (us|ms)$}}
//
// CHECK-DAG: device 0: copy of 4096 bytes in all: 1
// CHECK-DAG: device 0: from the accelerator of 1048676 bytes in all: 2
// CHECK-DAG: device 0: load image: 1
// CHECK-DAG: device 0: main, line 37: 4
// CHECK-DAG: device 0: receive of 1048576 bytes in all: 1
// CHECK-DAG: device 0: send of 1048576 bytes in all: 1
// CHECK-DAG: device 0: to the accelerator of 1048676 bytes in all: 2

#include "offload.h"

enum { SMALL = 100, LARGE = 1 << 20 };

int main(void) {
  int here = omp_get_initial_device();
  int x = 0, failed = 0;
  for (int i = 0; i < 4; ++i) {
#pragma omp target map(tofrom : x)
    x++;
  }
  static char data[LARGE];
  char *there = omp_target_alloc(LARGE, 0);
  failed |= omp_target_memcpy(there, data, SMALL, 0, 0, 0, here);
  failed |= omp_target_memcpy(there, data, LARGE, 0, 0, 0, here);
  failed |= omp_target_memcpy(there, there, 4096, 0, 4096, 0, 0);
  failed |= omp_target_memcpy(data, there, SMALL, 0, 0, here, 0);
  failed |= omp_target_memcpy(data, there, LARGE, 0, 0, here, 0);
  CHECK(!failed && x == 4);
  return 0;
}
