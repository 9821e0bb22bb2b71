// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A trace of devices on other hosts, reached by TCP: they learn from the program that
// there is one, without the variable, and their clocks are aligned over the network.
//
// REQUIRES: hosts
//
// RUN: %clang %s -o %t
// RUN: %bare %hosts alpha,beta,gamma env OMPTARGET_MPI_TRACE=%t.json %launch --hosts beta,gamma %t
// RUN: %trace %t.json > %t.out
// RUN: FileCheck %s --input-file %t.out
//
// CHECK-DAG: data, program to device 0: 1{{$}}
// CHECK-DAG: data, program to device 1: 1{{$}}
// CHECK-DAG: data, device 0 to device 1: 1{{$}}
// CHECK-DAG: device 0: main, line 31: 10{{$}}
// CHECK-DAG: device 1: main, line 31: 10{{$}}

#include "offload.h"

enum { SIZE = 1 << 20 };

int main(void) {
  static char data[SIZE];
  char *there[2];
  CHECK(omp_get_num_devices() == 2); // not by their pids: each host has its own
  for (int d = 0; d < 2; ++d) {
    there[d] = omp_target_alloc(SIZE, d);
    CHECK(!omp_target_memcpy(there[d], data, SIZE, 0, 0, d, omp_get_initial_device()));
    for (int i = 0; i < 10; ++i) {
      int x = i;
#pragma omp target map(tofrom : x) device(d)
      x++;
      CHECK(x == i + 1);
    }
  }
  CHECK(!omp_target_memcpy(there[1], there[0], SIZE, 0, 0, 1, 0));
  for (int d = 0; d < 2; ++d)
    omp_target_free(there[d], d);
  return 0;
}
