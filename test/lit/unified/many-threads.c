// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hundreds of threads of the program run regions on one device, each with two arrays of its own. While regions overlap, each
// one that begins and ends is work for all of them: without turns this takes longer than a job may.
//
// RUN: %clang %s -o %t
// RUN: %run1 --timeout 120 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"

enum { THREADS = 300, REGIONS = 6 };

int main(void) {
  need_devices(1);
#pragma omp parallel num_threads(THREADS)
  {
    unsigned random = omp_get_thread_num() * 77 + 5;
    for (int region = 0; region < REGIONS; ++region) {
      random = random * 1103515245 + 12345;
      unsigned n = 100 + (random >> 8) % 19901;
      unsigned *sum = malloc(n * sizeof *sum), *added = malloc(n * sizeof *added);
      for (unsigned i = 0; i < n; ++i) {
        sum[i] = i + region;
        added[i] = random + i;
      }
#pragma omp target firstprivate(sum, added, n)
      for (unsigned i = 0; i < n; ++i)
        sum[i] += added[i];
      for (unsigned i = 0; i < n; ++i)
        CHECK(sum[i] == 2 * i + region + random);
      free(sum);
      free(added);
    }
  }
  return 0;
}
