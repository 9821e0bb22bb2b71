// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels with 0, 1, 6, 7, 17 and 40 arguments: char, int, long, float and
// double by value, and pointers to what is mapped, none mixed up.
//
// RUN: %clangxx %s -o %t
// RUN: %run2 %t

#include "offload.h"

// Five scalars of five types, told apart by k, and a check that they came so.
#define FIVE(k)                                                                \
  char c##k = 10 + k;                                                          \
  int i##k = -1000 - k;                                                        \
  long l##k = -5000000000L - k;                                                \
  float f##k = 0.5f + k;                                                       \
  double d##k = -1e100 * (k + 1)
#define PLAIN(k) c##k, i##k, l##k, f##k, d##k
#define GOOD(k)                                                                \
  (c##k == 10 + k && i##k == -1000 - k && l##k == -5000000000L - k &&          \
   f##k == 0.5f + k && d##k == -1e100 * (k + 1))

#pragma omp declare target
static int ran;
#pragma omp end declare target

static void none(int d) {
  int value = 0;
#pragma omp target device(d)
  ++ran;
#pragma omp target map(from : value) device(d)
  value = ran;
  CHECK(value == 1);
}

static void one(int d) {
  float x = 1.25f;
#pragma omp target firstprivate(x) device(d)
  ran = x == 1.25f ? 10 : 11;
  int value = 0;
#pragma omp target map(from : value) device(d)
  value = ran;
  CHECK(value == 10);
}

static void six(int d) {
  FIVE(1);
  int good = 0;
#pragma omp target firstprivate(PLAIN(1)) map(tofrom : good) device(d)
  good = GOOD(1);
  CHECK(good);
}

static void seven(int d) {
  FIVE(1);
  bool yes = true;
  int good = 0;
#pragma omp target firstprivate(PLAIN(1), yes) map(tofrom : good) device(d)
  good = GOOD(1) && yes;
  CHECK(good);
}

static void seventeen(int d) {
  FIVE(1);
  FIVE(2);
  int a[3] = {1, 2, 3}, b[3] = {4, 5, 6}, *none = nullptr;
  double x[2] = {0.5, 0.25}, y[2] = {2, 4};
  struct {
    short s;
    char t[11];
  } small = {-7, "firstpriv."};
  int good = 0;
#pragma omp target firstprivate(PLAIN(1), PLAIN(2), small, none)               \
    map(tofrom : a, good) map(to : b, x) map(from : y) device(d)
  {
    good = GOOD(1) && GOOD(2) && a[2] == 3 && b[2] == 6 && x[1] == 0.25 &&
           none == nullptr && small.s == -7 && small.t[9] == '.';
    a[0] = 42;
    y[0] = -1;
    y[1] = -2;
    small.s = 0;
  }
  CHECK(good && a[0] == 42 && y[1] == -2 && small.s == -7);
}

static void forty(int d) {
  FIVE(1);
  FIVE(2);
  FIVE(3);
  FIVE(4);
  FIVE(5);
  FIVE(6);
  FIVE(7);
  FIVE(8);
  int good = 0;
#pragma omp target firstprivate(PLAIN(1), PLAIN(2), PLAIN(3), PLAIN(4),        \
                                    PLAIN(5), PLAIN(6), PLAIN(7), PLAIN(8))    \
    map(tofrom : good) device(d)
  good = GOOD(1) && GOOD(2) && GOOD(3) && GOOD(4) && GOOD(5) && GOOD(6) &&
         GOOD(7) && GOOD(8);
  CHECK(good);
}

int main() {
  need_devices(2);
  for (int d = 0; d < 2; ++d) {
    none(d);
    one(d);
    six(d);
    seven(d);
    seventeen(d);
    forty(d);
  }
  return 0;
}
