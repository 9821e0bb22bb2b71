// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a region asks for reaches the accelerator: teams and threads.
//
// RUN: %clang %s -o %t
// RUN: env OMP_NUM_THREADS=4 %run %t

#include "offload.h"

int main(void) {
  int teams = 0, threads = 0, limit = 0;
#pragma omp target teams num_teams(3) thread_limit(2) map(from : teams, threads, limit)
  if (omp_get_team_num() == 0) {
    teams = omp_get_num_teams();
    limit = omp_get_thread_limit();
#pragma omp parallel
#pragma omp single
    threads = omp_get_num_threads();
  }
  CHECK(teams >= 1 && teams <= 3);
  CHECK(limit == 2 && threads <= 2);
  return 0;
}
