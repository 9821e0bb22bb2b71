// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several threads write a large range in order, each the next part: while one waits for memory that is placed for all of
// them, the others use the same addresses.
//
// RUN: %clang %s -o %t
// RUN: env OMP_NUM_THREADS=4 %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"

enum { N = 48 << 20, PART = 4096, ROUNDS = 12 };

int main(void) {
  need_devices(1);
  unsigned char *p = calloc(N, 1);
  CHECK(p);
  for (int round = 1; round <= ROUNDS; ++round) {
#pragma omp target parallel for schedule(dynamic, 1)
    for (int part = 0; part < N / PART; ++part)
      for (int i = 0; i < PART; ++i)
        p[part * PART + i] += 1;
    for (int i = 0; i < N; ++i)
      CHECK(p[i] == round);
  }
  free(p);
  return 0;
}
