// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Eight host threads launch regions with data of many sizes on two devices at
// the same time; each gets its own results. The first touch of the devices is
// such a race too.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t

#include "offload.h"

enum { THREADS = 8, ROUNDS = 150, MOST = 50000 };

#pragma omp declare target
static int calls;
#pragma omp end declare target

int main(void) {
  int wrong = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : wrong)
  {
    int me = omp_get_thread_num();
    unsigned *a = malloc(MOST * sizeof *a);
    for (int round = 0; round < ROUNDS; ++round) {
      int n = 1 + (me * 7919 + round * 104729) % MOST;
      unsigned key = me * 1000 + round;
      for (int i = 0; i < n; ++i)
        a[i] = i ^ key;
#pragma omp target map(tofrom : a[0 : n]) device((me + round) % 2)
      {
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < n; ++i)
          a[i] = a[i] * 3 + key;
      }
      for (int i = 0; i < n; ++i)
        wrong += a[i] != (i ^ key) * 3 + key;
    }
    free(a);
  }
  CHECK(wrong == 0);
  need_devices(2);
  for (int d = 0; d < 2; ++d) {
    int value = 0;
#pragma omp target map(from : value) device(d)
    value = calls;
    CHECK(value == THREADS * ROUNDS / 2);
  }
  return 0;
}
