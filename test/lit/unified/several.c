// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Four devices work at once on parts of one array whose borders are in the middle of pages and words; then each reads
// what the others have written.
//
// RUN: %clang %s -o %t
// RUN: %run --ranks hdddd %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "unified.h"

enum { N = 1000003 };

int main(void) {
  need_devices(4);
  unsigned char *p = malloc(N);
  fill(p, N, 0);
  size_t wrong[4] = {0}, *w = wrong;
  for (int round = 0; round < 4; ++round) {
    for (int d = 0; d < 4; ++d) {
      size_t from = (size_t)N * d / 4, to = (size_t)N * (d + 1) / 4;
#pragma omp target nowait device((d + round) % 4) firstprivate(p, from, to, w, d, round)
      for (size_t i = from; i < to; ++i) {
        w[d] += p[i] != pattern(i, round);
        p[i] = pattern(i, round + 1);
      }
    }
#pragma omp taskwait
    for (int d = 0; d < 4; ++d)
      CHECK(wrong[d] == 0);
    CHECK(differences(p, N, round + 1) == 0);
  }
  free(p);
  return 0;
}
