// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Thousands of allocations, freed in another order and had again, never overlap
// and keep their contents.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t

#include "offload.h"

enum { MANY = 2000 };
static struct {
  unsigned *p;
  unsigned n;
} blocks[MANY];

static void make(int i, unsigned round) {
  unsigned n = 1 + (i * 7919u + round * 104729u) % 5000, seed = i * 1000003u;
  unsigned *p = omp_target_alloc(n * sizeof *p, 0);
  CHECK(p != NULL);
  blocks[i].p = p;
  blocks[i].n = n;
#pragma omp target is_device_ptr(p)
  for (unsigned k = 0; k < n; ++k)
    p[k] = seed + k;
}

static void check_and_free(int i) {
  unsigned *p = blocks[i].p, n = blocks[i].n, seed = i * 1000003u, wrong = 0;
#pragma omp target is_device_ptr(p) map(tofrom : wrong)
  for (unsigned k = 0; k < n; ++k)
    wrong += p[k] != seed + k;
  CHECK(wrong == 0);
  omp_target_free(p, 0);
}

int main(void) {
  need_devices(1);
  for (unsigned i = 0; i < MANY; ++i)
    make(i, 0);
  for (unsigned round = 1; round < 4; ++round)
    for (unsigned k = 0; k < MANY / 3; ++k) {
      unsigned i = (k * 3 + round) % MANY;
      check_and_free(i);
      make(i, round);
    }
  for (unsigned i = 0; i < MANY; ++i)
    check_and_free(i);
  return 0;
}
