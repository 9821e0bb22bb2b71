// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The threads of a region's team use the program's memory at once: loops over large arrays, reductions, atomics and
// critical sections, and teams of one kernel.
//
// RUN: %clang %s -lm -o %t
// RUN: env OMP_NUM_THREADS=2 %run1 %t 2> %t.err
// RUN: %line none %t.err
// RUN: env OMP_NUM_THREADS=8 %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"

enum { N = 4 << 20 };

int main(void) {
  need_devices(1);
  double *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
  for (int i = 0; i < N; ++i) {
    a[i] = i;
    b[i] = 1;
  }
  for (int round = 1; round <= 3; ++round) {
#pragma omp target teams distribute parallel for
    for (int i = 0; i < N; ++i)
      b[i] += a[i];
    for (int i = 0; i < N; ++i)
      CHECK(b[i] == 1 + (double)round * i);
  }
  double sum = 0;
#pragma omp target parallel for reduction(+ : sum) map(tofrom : sum)
  for (int i = 0; i < N; ++i)
    sum += a[i];
  CHECK(sum == (double)N * (N - 1) / 2);

  int counter[2] = {0, 0}, *c = counter;
#pragma omp target parallel for schedule(dynamic, 100)
  for (int i = 0; i < 100000; ++i) {
#pragma omp atomic
    c[0]++;
#pragma omp critical
    c[1] += 2;
  }
  CHECK(counter[0] == 100000 && counter[1] == 200000);
  free(a);
  free(b);
  return 0;
}
