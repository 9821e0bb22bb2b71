// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Deferred regions: a taskloop of nowait regions, chains of dependences within a
// device and from device to device, nowait data transfers, and a taskgroup.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t
// RUN: env LIBOMP_NUM_HIDDEN_HELPER_THREADS=2 %run2 %t

#include "offload.h"

enum { N = 200 };

static void loop(void) {
  static int a[N];
#pragma omp parallel
#pragma omp single
#pragma omp taskloop
  for (int i = 0; i < N; ++i) {
#pragma omp target nowait map(tofrom : a[i : 1]) device(i % 2)
    a[i] += 3 * i + 1;
  }
#pragma omp taskwait
  for (int i = 0; i < N; ++i)
    CHECK(a[i] == 3 * i + 1);
}

/// One value goes through a hundred regions, each on the other device.
static void chain(void) {
  int x = 1;
  long expected = 1;
#pragma omp parallel
#pragma omp single
  for (int i = 0; i < 100; ++i) {
#pragma omp target nowait map(tofrom : x) depend(inout : x) device(i % 2)
    x = (x * 3 + i) % 10007;
  }
#pragma omp taskwait
  for (int i = 0; i < 100; ++i)
    expected = (expected * 3 + i) % 10007;
  CHECK(x == expected);
}

/// A diamond: one region, two that need it, one that needs both.
static void diamond(void) {
  for (int round = 0; round < 20; ++round) {
    int a = 0, b = 0, c = 0, d = 0;
#pragma omp parallel
#pragma omp single
    {
#pragma omp target nowait map(tofrom : a) depend(out : a) device(0)
      a = round + 1;
#pragma omp target nowait map(to : a) map(from : b) depend(in : a)             \
    depend(out : b) device(0)
      b = 2 * a;
#pragma omp target nowait map(to : a) map(from : c) depend(in : a)             \
    depend(out : c) device(1)
      c = 3 * a;
#pragma omp target nowait map(to : b, c) map(from : d) depend(in : b, c)       \
    depend(out : d) device(1)
      d = b + c;
    }
    CHECK(d == 5 * (round + 1));
  }
}

static void transfers(void) {
  static int a[N];
  for (int i = 0; i < N; ++i)
    a[i] = i;
#pragma omp target enter data nowait map(to : a) depend(out : a)
#pragma omp target nowait depend(inout : a)
  for (int i = 0; i < N; ++i)
    a[i] += 1;
#pragma omp target update nowait from(a[0 : N / 2]) depend(inout : a)
#pragma omp target nowait depend(inout : a)
  for (int i = 0; i < N; ++i)
    a[i] += 10;
#pragma omp target exit data nowait map(from : a) depend(inout : a)
#pragma omp taskwait
  for (int i = 0; i < N; ++i)
    CHECK(a[i] == i + 11);
}

static void group(void) {
  int done[8] = {0};
#pragma omp taskgroup
  for (int i = 0; i < 8; ++i) {
#pragma omp target nowait map(from : done[i : 1]) device(i % 2)
    done[i] = i + 1;
  }
  for (int i = 0; i < 8; ++i)
    CHECK(done[i] == i + 1);
}

int main(void) {
  need_devices(2);
  loop();
  chain();
  diamond();
  transfers();
  group();
  return 0;
}
