// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// OMPTARGET_MPI_TRACE=FILE: regions, deferred ones on two devices among them, and copies
// all ways, each seen at the program and at the device, with an arrow from one to the
// other that does not go back in time (trace.py checks all that).
//
// RUN: %clang %s -o %t
// RUN: rm -f %t.json && env OMPTARGET_MPI_TRACE=%t.json %run2 %t 2> %t.err
// RUN: %line none %t.err
// RUN: %trace %t.json > %t.out
// RUN: FileCheck %s --input-file %t.out
// RUN: rm -f %t.json && env OMPTARGET_MPI_TRACE=%t.json %run --ranks hdd %t
// RUN: %trace %t.json > %t.out
// RUN: FileCheck %s --input-file %t.out
//
// CHECK-DAG: data, device 0 to device 1: 3
// CHECK-DAG: data, device 0 to program: 1
// CHECK-DAG: data, program to device 0: 2
// CHECK-NOT: data, program to device 1
// CHECK-DAG: device 0: copy of 4096 bytes in all: 1
// CHECK-DAG: device 0: dropped: 0
// CHECK-DAG: device 0: load image: 1
// CHECK-DAG: device 0: main, line 54: 20
// CHECK-DAG: device 0: main, line 59: 5
// CHECK-DAG: device 0: receive image of
// CHECK-DAG: device 0: receive of 2097152 bytes in all: 2
// CHECK-DAG: device 0: send of 1245184 bytes in all: 4
// CHECK-DAG: device 1: main, line 54: 20
// CHECK-DAG: device 1: receive of 196608 bytes in all: 3
// CHECK-DAG: device 1: rows: {{[1-9]}}
// CHECK-DAG: message, program to device 0: {{[0-9]+}}
// CHECK-DAG: message, program to device 1: {{[0-9]+}}
// CHECK-DAG: program: exchange of 200704 bytes in all: 4
// CHECK-DAG: program: launch main, line 54: 40
// CHECK-DAG: program: launch main, line 59: 5
// CHECK-DAG: program: load image: 2
// CHECK-DAG: program: retrieve of 1048764 bytes in all: 48
// CHECK-DAG: program: rows: {{[2-9]|[1-9][0-9]}}
// CHECK-DAG: program: submit of 2097332 bytes in all: 47
// CHECK-DAG: program: wait: {{[0-9]+}}
// CHECK-DAG: reply, device 0 to program: {{[0-9]+}}
// CHECK-DAG: reply, device 1 to program: {{[0-9]+}}

#include "offload.h"

static char data[1 << 20];

int main(void) {
  need_devices(2);
  int seen[40] = {0}, x = 0, host = omp_get_initial_device();
  char *there = omp_target_alloc(1 << 20, 0), *other = omp_target_alloc(1 << 16, 1);
#pragma omp parallel num_threads(2)
#pragma omp single
  for (int i = 0; i < 40; ++i) {
#pragma omp target nowait device(i % 2) map(tofrom : seen[i])
    seen[i] += i + 1;
  }
  for (int i = 0; i < 5; ++i) {
    CHECK(x == i);
#pragma omp target map(tofrom : x)
    x++;
  }
  for (int i = 0; i < 40; ++i)
    CHECK(seen[i] == i + 1);
  for (int i = 0; i < 2; ++i)
    CHECK(!omp_target_memcpy(there, data, sizeof data, 0, 0, 0, host));
  CHECK(!omp_target_memcpy(data, there, sizeof data, 0, 0, host, 0));
  for (int i = 0; i < 3; ++i)
    CHECK(!omp_target_memcpy(other, there, 1 << 16, 0, 0, 1, 0));
  CHECK(!omp_target_memcpy(there + 8192, there, 4096, 0, 0, 0, 0));
  omp_target_free(there, 0);
  omp_target_free(other, 1);
  return 0;
}
