// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads of the program run regions on one device at once. Each region sees what its thread has written before, in
// pages that no other thread uses and in lines between those of other threads, and what it writes is there when it
// ends. All of them count in one variable.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"

enum { THREADS = 3, ROUNDS = 100, PART = 512, PARTS = 96, LINE = 64, LINES = 64 };

static unsigned char common[LINES * THREADS * LINE] __attribute__((aligned(4096)));

int main(void) {
  long regions = 0;
  need_devices(1);
#pragma omp parallel num_threads(THREADS)
  {
    size_t me = omp_get_thread_num();
    unsigned char *own = calloc(PARTS, PART), *lines = common + me * LINE;
    for (size_t round = 0; round < ROUNDS; ++round) {
      unsigned char value = round * 7 + me;
      size_t part = round * 31 % PARTS * PART, line = round * 13 % LINES * THREADS * LINE;
      unsigned long seen = 0, expected = 0;
      own[part] += value;
      lines[line] += value;
#pragma omp target firstprivate(own, lines, line) map(tofrom : seen, regions)
      {
        for (size_t i = 0; i < PARTS * PART; i += PART)
          seen = seen * 31 + own[i];
        for (size_t i = 0; i < LINES * THREADS * LINE; i += THREADS * LINE)
          seen = seen * 31 + lines[i];
        lines[line + 1]++;
#pragma omp atomic
        regions++;
      }
      for (size_t i = 0; i < PARTS * PART; i += PART)
        expected = expected * 31 + own[i];
      for (size_t i = 0; i < LINES * THREADS * LINE; i += THREADS * LINE)
        expected = expected * 31 + lines[i];
      CHECK(seen == expected);
      CHECK(lines[line + 1] == round / LINES + 1);
    }
    free(own);
  }
  CHECK(regions == THREADS * ROUNDS);
  return 0;
}
