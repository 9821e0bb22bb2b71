// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that has almost as many mappings as Linux allows (vm.max_map_count, 65,530): pages with gaps between them, of
// which the device has as many mappings, and neighbors of which every second one is read-only. Regions use all of it.
//
// RUN: %clang -D_GNU_SOURCE %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <errno.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static size_t limit(void) {
  size_t n = 0;
  FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
  CHECK(file && fscanf(file, "%zu", &n) == 1);
  fclose(file);
  // Some systems allow millions.
  return n < 65530 ? n : 65530;
}

static size_t mappings(void) {
  size_t n = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  CHECK(file);
  for (int c; (c = getc(file)) != EOF;)
    n += c == '\n';
  fclose(file);
  return n;
}

/// Reserves addresses for this many pages. They have no memory yet.
static char *room(size_t pages) {
  char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

/// Adds 1 to every `step`th page; returns the sum of what was in all of them.
static size_t use(char *p, size_t pages, size_t step, size_t next) {
  size_t sum = 0;
#pragma omp target map(tofrom : sum)
  for (size_t i = 0; i < pages; i += next) {
    sum += p[i * PAGE];
    if (i % step == 0)
      p[i * PAGE] += 1;
  }
  return sum;
}

int main(void) {
  need_devices(1);
  // A device has some hundred of its own.
  size_t n = limit() - mappings() - 1000;
  char *p = room(2 * n);
  for (size_t i = 0; i < n; ++i) {
    p[2 * i * PAGE] = 1;
    CHECK(munmap(p + (2 * i + 1) * PAGE, PAGE) == 0);
  }
  CHECK(mappings() > n);
  CHECK(use(p, 2 * n, 2, 2) == n);
  CHECK(use(p, 2 * n, 2, 2) == 2 * n);
  CHECK(munmap(p, 2 * n * PAGE) == 0);

  // As many as it gets, but for a few.
  n = limit() - mappings() - 20;
  n -= n % 2;
  p = room(n);
  for (size_t i = 0; i < n; ++i)
    p[i * PAGE] = 1;
  for (size_t i = 1; i < n; i += 2)
    CHECK(mprotect(p + i * PAGE, PAGE, PROT_READ) == 0);
  CHECK(use(p, n, 2, 1) == n);
  CHECK(use(p, n, 2, 1) == n + n / 2);
  for (size_t i = 0; i < n; ++i)
    CHECK(p[i * PAGE] == (i % 2 ? 1 : 3));
  return 0;
}
