// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region writes to every second page of 1 GiB: 131,072 pages, twice as many as a process has mappings.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <sys/mman.h>

int main(void) {
  need_devices(1);
  const size_t page = 4096, n = (size_t)1 << 30;
  char *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED);
#pragma omp target
  for (size_t at = 0; at < n; at += 2 * page)
    p[at] = 1 + at / page % 100;
  for (size_t at = 0; at < n; at += page)
    CHECK(p[at] == (at / page % 2 ? 0 : 1 + (char)(at / page % 100)));
  // In no order.
  const size_t pages = n / page;
#pragma omp target
  for (size_t i = 0; i < 4096; ++i)
    p[i * 7919 * 2 % pages * page + 1] += 1;
  size_t sum = 0;
  for (size_t at = 0; at < n; at += page)
    sum += p[at + 1];
  CHECK(sum == 4096);
  CHECK(munmap(p, n) == 0);
  return 0;
}
