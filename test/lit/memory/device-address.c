// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Device addresses in the program's hands: use_device_addr and has_device_addr,
// use_device_ptr and is_device_ptr, and a pointer bound to memory of the
// program's own choice (omp_target_associate_ptr), on every device.
//
// RUN: %clang -fopenmp-version=51 %s -o %t
// RUN: %run2 %t

#include "offload.h"

enum { N = 3000 };

static void addr(int d) {
  int here[N], *x = here;
  for (int i = 0; i < N; ++i)
    x[i] = i;
  // By sections: of whole arrays clang 16 maps a copy.
#pragma omp target data map(tofrom : x[0 : N]) use_device_addr(x[0 : N]) \
    device(d)
// clang 14 does not know the clause; 15's regions crash, with LLVM's host plugin too.
#if __clang_major__ < 16
#pragma omp target is_device_ptr(x) device(d)
#else
#pragma omp target has_device_addr(x[0 : N]) device(d)
#endif
  for (int i = 0; i < N; ++i)
    x[i] += 1;
  for (int i = 0; i < N; ++i)
    CHECK(here[i] == i + 1);
}

static void ptr(int d) {
  int *x = malloc(N * sizeof *x);
  for (int i = 0; i < N; ++i)
    x[i] = i;
#pragma omp target data map(tofrom : x[0 : N]) use_device_ptr(x) device(d)
#pragma omp target is_device_ptr(x) device(d)
  for (int i = 0; i < N; ++i)
    x[i] *= 2;
  for (int i = 0; i < N; ++i)
    CHECK(x[i] == 2 * i);
  free(x);
}

static void associate(int d) {
  static int x[N];
  int *there = omp_target_alloc(sizeof x, d);
  CHECK(omp_target_associate_ptr(x, there, sizeof x, 0, d) == 0);
#pragma omp target map(always, tofrom : x) device(d)
  for (int i = 0; i < N; ++i)
    x[i] = i + d;
  for (int i = 0; i < N; ++i)
    CHECK(x[i] == i + d);
  CHECK(omp_target_disassociate_ptr(x, d) == 0);
  omp_target_free(there, d);
}

int main(void) {
  need_devices(2);
  for (int d = 0; d < 2; ++d) {
    addr(d);
    ptr(d);
    associate(d);
  }
  return 0;
}
