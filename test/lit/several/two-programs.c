// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Three programs at once on one machine, with two devices each, do not disturb
// each other: every one sees its own devices, data and ends by itself.
//
// RUN: %clang %s -o %t
// RUN: %together 3 %run2 %t 2> %t.err
// RUN: %line none %t.err

#include "offload.h"

#pragma omp declare target
static int counter;
#pragma omp end declare target

enum { N = 30000, ROUNDS = 200 };

int main(void) {
  need_devices(2);
  static int a[N];
  int key = getpid();
  for (int round = 0; round < ROUNDS; ++round) {
    int wrong = 0;
    for (int i = 0; i < N; ++i)
      a[i] = i ^ key;
#pragma omp target map(tofrom : a, wrong) firstprivate(key) device(round % 2)
    {
      ++counter;
      for (int i = 0; i < N; ++i) {
        wrong += a[i] != (i ^ key);
        a[i] += round;
      }
    }
    for (int i = 0; i < N; ++i)
      wrong += a[i] != (i ^ key) + round;
    CHECK(wrong == 0);
  }
  int value = 0;
#pragma omp target map(from : value) device(1)
  value = counter;
  CHECK(value == ROUNDS / 2);
  return 0;
}
