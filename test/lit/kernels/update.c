// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// target update both ways: whole arrays, ranges, and every other element of
// a block within a matrix; what is beside it stays as it was.
//
// What the compiler of LLVM 23 says of a block is nothing to the libomptarget of 22.
// XFAIL: llvm23
//
// RUN: %clang -fopenmp-version=51 %s -o %t
// RUN: %run2 %t

#include "offload.h"

enum { N = 1000, R = 20, C = 30 };

#pragma omp declare target
/// Whether m[3 : 5][0 : 11 : 2] holds the element.
static int inside(int i, int k) {
  return i >= 3 && i < 8 && k <= 20 && k % 2 == 0;
}
#pragma omp end declare target

static void line(int d) {
  int a[N], wrong = 0;
  for (int i = 0; i < N; ++i)
    a[i] = i;
#pragma omp target enter data map(to : a) device(d)
  for (int i = 0; i < N; ++i)
    a[i] = -i;
#pragma omp target update to(a[100 : 200]) device(d)
#pragma omp target map(tofrom : wrong) device(d)
  for (int i = 0; i < N; ++i) {
    wrong += a[i] != (i >= 100 && i < 300 ? -i : i);
    a[i] = 2 * i;
  }
  CHECK(wrong == 0);
#pragma omp target update from(a[500 : 7]) device(d)
  for (int i = 0; i < N; ++i)
    CHECK(a[i] == (i >= 500 && i < 507 ? 2 * i : -i));
#pragma omp target exit data map(delete : a) device(d)
}

// Every other column of some rows. (With a step of 1 in the last dimension
// libomptarget 16 copies only one element of a row, and it multiplies the lower
// bound of a dimension by its step: forms that it gets wrong are left out.)
static void block(int d) {
  static int m[R][C];
  for (int i = 0; i < R; ++i)
    for (int k = 0; k < C; ++k)
      m[i][k] = 100 * i + k;
#pragma omp target enter data map(to : m) device(d)
#pragma omp target device(d)
  for (int i = 0; i < R; ++i)
    for (int k = 0; k < C; ++k)
      m[i][k] = -m[i][k];
#pragma omp target update from(m[3 : 5][0 : 11 : 2]) device(d)
  for (int i = 0; i < R; ++i)
    for (int k = 0; k < C; ++k)
      CHECK(m[i][k] == (inside(i, k) ? -1 : 1) * (100 * i + k));

  for (int i = 0; i < R; ++i)
    for (int k = 0; k < C; ++k)
      m[i][k] = 7;
#pragma omp target update to(m[3 : 5][0 : 11 : 2]) device(d)
  int wrong = 0;
#pragma omp target map(tofrom : wrong) device(d)
  for (int i = 0; i < R; ++i)
    for (int k = 0; k < C; ++k)
      wrong += m[i][k] != (inside(i, k) ? 7 : -(100 * i + k));
  CHECK(wrong == 0);
#pragma omp target exit data map(delete : m) device(d)
}

int main(void) {
  need_devices(2);
  for (int d = 0; d < 2; ++d) {
    line(d);
    block(d);
  }
  return 0;
}
