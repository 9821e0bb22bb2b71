// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The stand-in's copies share its speed, as those of an accelerator share a bus: two threads' take as long as one after
// the other.
//
// REQUIRES: llvm16
// RUN: %clang %s -o %t
// RUN: %make-standin
// RUN: %standin STANDIN_SPEED=10 %t

#include "offload.h"

enum { N = 1 << 20, SPEED = 10 };

int main(void) {
  int failed = 0;
  char *here = calloc(2, N), *there = omp_target_alloc(2 * N, 0);
  CHECK(here && there);
  double begin = omp_get_wtime();
#pragma omp parallel num_threads(2) reduction(| : failed)
  {
    size_t at = (size_t)omp_get_thread_num() * N;
    failed |= omp_target_memcpy(there, here, N, at, at, 0, omp_get_initial_device());
  }
  double took = omp_get_wtime() - begin;
  CHECK(!failed);
  CHECK(took * 1e6 >= 2.0 * N / SPEED);
  return 0;
}
