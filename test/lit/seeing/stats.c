// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// OMPTARGET_MPI_STATS=1: one table of each device at the end, with exact counts of
// regions, bytes each way and messages, and the five regions that took most time.
// Without it nothing is said.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_STATS=1 %run2 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: FileCheck %s --input-file %t.err --check-prefix=MESSAGES
// RUN: FileCheck %s --input-file %t.err --check-prefix=FIVE
// RUN: %run2 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err --check-prefix=SILENT --allow-empty
// RUN: env OMPTARGET_MPI_STATS=0 %run2 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err --check-prefix=SILENT --allow-empty
//
// Device 0: one region of need_devices, 100 that add, 1 each of six more, one of which
// takes by far the most time and the next the second most.
// Bytes up: 100 ints, and 1 MiB + 4 KiB by copies; back: 101 ints and 8 KiB.
//
// CHECK:       omptarget-mpi: device 0 (rank 1 on host {{.*}}, pid {{[0-9]+}})
// CHECK-NEXT:  {{^ count bytes time$}}
// CHECK-NEXT:  {{^ regions +107 +[1-9][0-9.]+ (ms|s)$}}
// CHECK-NEXT:  {{^ host to device +102 +1053072 +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT:  {{^ device to host +102 +8596 +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT:  {{^ to other devices +1 +65536 +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT:  {{^ from other devices +0 +0 +0$}}
// CHECK-NEXT:  {{^ within the device +1 +4096 +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT:  {{^ messages to the device +[0-9]+$}}
// CHECK-NEXT:  {{^ messages from the device +[0-9]+$}}
// CHECK-NEXT:  {{^ waits of the host +[0-9]+ +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT:  {{^ peak memory 1122(304|368)$}}
// CHECK-NEXT:  {{^ regions that took most time$}}
// CHECK-NEXT:  {{^ slow, line 60 +1 +[0-9.]+ (ms|s)$}}
// CHECK-NEXT:  {{^ second, line 66 +1 +[0-9.]+ (ms|s)$}}
// CHECK:       omptarget-mpi: device 1 (rank 2 on host {{.*}}, pid {{[0-9]+}})
// CHECK-NEXT:  count
// CHECK-NEXT:  {{^ regions +1 +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT:  {{^ host to device +0 +0 +0$}}
// CHECK-NEXT:  {{^ device to host +1 +4 +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT:  {{^ to other devices +0 +0 +0$}}
// CHECK-NEXT:  {{^ from other devices +1 +65536 +[0-9.]+ (us|ms|s)$}}
// CHECK:       {{^ peak memory 69(632|696)$}}
// CHECK-NEXT:  {{^ regions that took most time$}}
// CHECK-NEXT:  {{^ need_devices, line [0-9]+ +1 +[0-9.]+ (us|ms|s)$}}
// CHECK-NOT:   {{.}}
//
// An image that comes and is loaded; regions; five copies. LLVM 19 also takes the image
// back before the end, and has 64 bytes of its own on each device.
// MESSAGES: {{^ messages to the device +11[45]$}}
//
// FIVE:         regions that took most time
// FIVE-COUNT-5: {{^ [a-z_]+, line [0-9]+ }}
// FIVE-NEXT:    omptarget-mpi: device 1
//
// SILENT-NOT:   {{.}}

#include "offload.h"

static void slow(void) {
#pragma omp target
  usleep(300000);
}

static void second(void) {
  int n = 100000;
#pragma omp target firstprivate(n)
  usleep(n);
}

int main(void) {
  int x = 0, host = omp_get_initial_device();
  need_devices(2);
  slow();
  second();
  for (int i = 0; i < 100; ++i) {
#pragma omp target map(tofrom : x)
    x++;
  }
#pragma omp target
  {}
#pragma omp target
  {}
#pragma omp target
  {}
#pragma omp target
  {}
  CHECK(x == 100);
  static char data[1 << 20];
  char *there = omp_target_alloc(sizeof data, 0), *other = omp_target_alloc(1 << 16, 1);
  char *more = omp_target_alloc(1 << 16, 0);
  CHECK(!omp_target_memcpy(there, data, sizeof data, 0, 0, 0, host));
  CHECK(!omp_target_memcpy(there, data, 4096, 0, 0, 0, host));
  CHECK(!omp_target_memcpy(data, there, 8192, 0, 0, host, 0));
  CHECK(!omp_target_memcpy(other, there, 1 << 16, 0, 0, 1, 0));
  CHECK(!omp_target_memcpy(more, there, 4096, 0, 0, 0, 0));
  omp_target_free(more, 0);
  omp_target_free(there, 0);
  omp_target_free(other, 1);
  return 0;
}

// Copies from an accelerator are a part of the kernel's launch, and have no time of their own.
// UNSUPPORTED: accelerators
