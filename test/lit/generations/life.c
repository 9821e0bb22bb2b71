// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program's whole life under what stands in for libomptarget of LLVM 17 and 18:
// devices, kernels with arguments of all sizes, globals, copies, regions in a
// destructor, and an orderly end.
//
// RUN: rm -rf %t.17 %t.18 && mkdir %t.17 %t.18
// RUN: %loader17 %t.17/libomptarget.so.17 && ln -s libomptarget.so.17 %t.17/libomptarget.so
// RUN: %clang %s -L%t.17 -Wl,-rpath,%t.17 -o %t.17/program
// RUN: %run2 %t.17/program > %t.out
// RUN: FileCheck %s --input-file %t.out
//
// RUN: %loader18 %t.18/libomptarget.so.18.1 && ln -s libomptarget.so.18.1 %t.18/libomptarget.so
// RUN: %clang %s -L%t.18 -Wl,-rpath,%t.18 -o %t.18/program
// RUN: %run2 --slot %slot/llvm18 %t.18/program > %t.out
// RUN: FileCheck %s --input-file %t.out
//
// The loader knows this libomptarget by a relative path.
// RUN: %clang %s -L%t.18 -Wl,-rpath,. -o %t.18/relative
// RUN: cd %t.18 && %run2 --slot %slot/llvm18 ./relative > %t.out
// RUN: FileCheck %s --input-file %t.out
//
// CHECK:      device 0: 10 sums
// CHECK-NEXT: device 1: 10 sums
// CHECK-NEXT: in an exit handler: 21

#include "offload.h"

enum { LARGE = 3 << 20 };

#pragma omp declare target
int counter = 7;
#pragma omp end declare target

static int next(int d, int by) {
  int value = 0;
#pragma omp target map(from : value) device(d)
  value = counter += by;
  return value;
}

static void at_end(void) { printf("in an exit handler: %d\n", next(0, 4)); }

static void regions(int d) {
  static unsigned char large[LARGE];
  int sums = 0, array[100];
  double scale = 0.5;
  for (int i = 0; i < 100; ++i)
    array[i] = i;
  for (int round = 0; round < 10; ++round) {
    int sum = 0;
#pragma omp target teams distribute parallel for map(tofrom : sum, array)      \
    reduction(+ : sum) device(d)
    for (int i = 0; i < 100; ++i)
      sum += array[i] = (int)(array[i] + 2 * scale);
    sums += sum == 4950 + 100 * (round + 1);
  }
#pragma omp target device(d) map(tofrom : sums)
  printf("device %d: %d sums\n", d, sums);

  size_t wrong = 1;
  fill(large, LARGE, d);
#pragma omp target map(tofrom : large, wrong) device(d)
  {
    wrong = differences(large, LARGE, d);
    fill(large, LARGE, d + 2);
  }
  CHECK(wrong == 0 && differences(large, LARGE, d + 2) == 0);
}

static void copies(void) {
  unsigned char here[5000], back[5000] = {0};
  int host = omp_get_num_devices();
  void *a = omp_target_alloc(sizeof here, 0), *b = omp_target_alloc(sizeof here, 1);
  fill(here, sizeof here, 9);
  CHECK(omp_target_memcpy(a, here, sizeof here, 0, 0, 0, host) == 0);
  CHECK(omp_target_memcpy(b, a, sizeof here, 0, 0, 1, 0) == 0);
  CHECK(omp_target_memcpy(back, b, sizeof here, 0, 0, host, 1) == 0);
  CHECK(memcmp(here, back, sizeof here) == 0);
  omp_target_free(a, 0);
  omp_target_free(b, 1);
}

int main(void) {
  need_devices(2);
  atexit(at_end);
  regions(0);
  regions(1);
  CHECK(next(0, 10) == 17 && next(1, 1) == 8 && next(0, 0) == 17);
  copies();
  return 0;
}
