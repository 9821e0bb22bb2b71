// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What regions fetch of the program's memory, and change there, is in the table, in all and for each region, and in the
// trace. Nothing is said of regions that use none. Devices that can't read the program's memory themselves keep pages, and
// have a row for these.
//
// REQUIRES: plugin, reach
// RUN: %clang %s -o %t
// RUN: rm -f %t.json && env OMP_NUM_THREADS=4 OMPTARGET_MPI_STATS=1 OMPTARGET_MPI_TRACE=%t.json %run2 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: FileCheck %s --input-file %t.err --check-prefix=READ
// RUN: FileCheck %s --input-file %t.err --check-prefix=WRITE
// RUN: FileCheck %s --input-file %t.err --check-prefix=NONE
// RUN: %trace %t.json > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=TRACE
//
// CHECK:      omptarget-mpi: device 0
// CHECK:      {{^ within the device}}
// CHECK-NEXT: {{^ program's memory fetched +[1-9][0-9]* +[1-9][0-9]{7,} +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT: {{^ program's memory changed +2 +88 +[0-9.]+ (us|ms|s)$}}
// CHECK-NEXT: {{^ messages to the device}}
//
// READ:       {{^ read_all, line [0-9]+ +3 +[0-9.]+ (us|ms|s)$}}
// READ-NEXT:  {{^ program's memory fetched +[1-9][0-9]* +[1-9][0-9]{7,} +[0-9.]+ (us|ms|s)$}}
// READ-NEXT:  {{^ [a-z_]+, line |^omptarget-mpi: device 1}}
//
// WRITE:      {{^ write_some, line [0-9]+ +1 +[0-9.]+ (us|ms|s)$}}
// WRITE-NEXT: {{^ program's memory fetched +[1-9][0-9]* +[1-9][0-9]+ +[0-9.]+ (us|ms|s)$}}
// WRITE-NEXT: {{^ program's memory changed +1 +80 +[0-9.]+ (us|ms|s)$}}
//
// NONE:       {{^ none, line [0-9]+ +1 +[0-9.]+ (us|ms|s)$}}
// NONE-NEXT:  {{^ [a-z_]+, line |^omptarget-mpi: device 1}}
//
// TRACE-DAG: device 0: fetch memory of {{([1-9][0-9]{7,})}} bytes in all: {{[1-9][0-9]*}}
// TRACE-DAG: device 0: send changes of 88 bytes in all: 2
// TRACE-DAG: device 1: send changes of 8 bytes in all: 1

#include "unified.h"

enum { N = 8 << 20, PAGE = 4096 };

static void none(void) {
#pragma omp target
  {}
}

static void read_all(unsigned char *p) {
  for (int round = 0; round < 3; ++round) {
#pragma omp target parallel for
    for (size_t i = 0; i < N; i += 64) {
      if (p[i] != 7)
        __builtin_trap();
    }
  }
}

static void write_some(unsigned char *p) {
#pragma omp target
  for (int i = 0; i < 10; ++i)
    p[i * PAGE] = 8;
}

int main(void) {
  need_devices(2);
  unsigned char *p = aligned_alloc(PAGE, N);
  memset(p, 7, N);
  none();
  read_all(p);
  write_some(p);
  CHECK(p[0] == 8 && p[9 * PAGE] == 8);
  free(p);
  return 0;
}
