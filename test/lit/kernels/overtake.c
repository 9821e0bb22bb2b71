// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels of different queues do not wait for each other: one spins on a global
// of its device until a second, launched later, sets it, while short ones on
// both devices come and go, copies too.
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: %run2 %t

#include "offload.h"

#pragma omp declare target
static int flag;
#pragma omp end declare target

enum { LONG = 60 * 1000 }; // milliseconds that the long one waits at most

int main(void) {
  need_devices(2);
  for (int round = 1; round <= 3; ++round) {
    int waited = -1, wrong = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    {
#pragma omp task shared(waited)
      {
#pragma omp target map(from : waited) firstprivate(round) device(0)
        for (waited = 0; waited < LONG; ++waited) {
          if (__atomic_load_n(&flag, __ATOMIC_ACQUIRE) == round)
            break;
          usleep(1000);
        }
      }
#pragma omp task shared(wrong)
      {
        for (int i = 0; i < 200; ++i) {
          int x = i, block[5000];
          for (int k = 0; k < 5000; ++k)
            block[k] = k;
#pragma omp target map(tofrom : x, block) device(i % 2)
          {
            x += block[4999];
            block[0] = i;
          }
          wrong += x != i + 4999 || block[0] != i;
        }
#pragma omp target firstprivate(round) device(0)
        __atomic_store_n(&flag, round, __ATOMIC_RELEASE);
      }
    }
    CHECK(wrong == 0);
    CHECK(waited >= 0 && waited < LONG);
  }
  return 0;
}
