// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a region asks for reaches the accelerator: teams, threads and the number of iterations.
//
// REQUIRES: llvm16
// RUN: %clang -I%standin-include %s -o %t
// RUN: %make-standin
// RUN: rm -f %t.counts
// RUN: %standin env STANDIN_COUNTS=%t.counts %run1 %t %t.counts

#include "offload.h"
#include "standin.h"
#include <fcntl.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int n = 1234, sum = 0;
#pragma omp target teams distribute parallel for num_teams(3) thread_limit(2) reduction(+ : sum)
  for (int i = 0; i < n; ++i)
    sum += i;
  CHECK(sum == n * (n - 1) / 2);
  volatile uint64_t *counts =
      mmap(NULL, COUNTS * sizeof(uint64_t), PROT_READ, MAP_SHARED, open(argv[1], O_RDONLY), 0);
  CHECK(counts != MAP_FAILED);
  CHECK(counts[TEAMS] == 3 && counts[THREADS] == 2);
  CHECK(counts[TRIPCOUNT] == (uint64_t)n);
  return 0;
}
