// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// 2.2 GiB in one map clause, more than an int counts: every word is right on
// the device and, changed there, at home again.
//
// RUN: %clang %s -o %t
// RUN: %run1 --timeout 200 %t

#include "offload.h"

static uint64_t word(size_t i) { return (i + 1) * 0x9e3779b97f4a7c15u; }

int main(void) {
  need_devices(1);
  size_t n = (size_t)2252 * (1 << 20) / sizeof(uint64_t) + 1, wrong = 0;
  uint64_t *a = malloc(n * sizeof *a);
  CHECK(a != NULL);
  for (size_t i = 0; i < n; ++i)
    a[i] = word(i);
#pragma omp target map(tofrom : a[0 : n], wrong)
  for (size_t i = 0; i < n; ++i) {
    wrong += a[i] != word(i);
    a[i] = ~a[i];
  }
  CHECK(wrong == 0);
  for (size_t i = 0; i < n; ++i)
    wrong += a[i] != ~word(i);
  CHECK(wrong == 0);
  free(a);
  return 0;
}
