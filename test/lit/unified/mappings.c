// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the program maps, unmaps, moves and maps again between regions, at the same addresses too, is what the next region
// sees; also what lies above all that it had at its start. Where the device has memory of its own the program gets none.
//
// RUN: %clang -D_GNU_SOURCE %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { PAGE = 4096, N = 64 };

static char *map(void *at, size_t n) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char *p = mmap(at, n, PROT_READ | PROT_WRITE,
                 at ? flags | MAP_FIXED_NOREPLACE : flags, -1, 0);
  CHECK(p != MAP_FAILED && (!at || p == at));
  return p;
}

/// Adds 1 to the first byte of each page; returns the sum of what was there.
static long touch(char *p, size_t pages) {
  long sum = 0;
#pragma omp target map(from : sum)
  {
    sum = 0;
    for (size_t i = 0; i < pages; ++i)
      sum += p[i * PAGE]++;
  }
  return sum;
}

static void again(void) {
  char *p = map(NULL, N * PAGE);
  for (int round = 0; round < 5; ++round) {
    CHECK(touch(p, N) == 0);
    CHECK(p[0] == 1 && p[(N - 1) * PAGE] == 1);
    CHECK(touch(p, N) == N);
    CHECK(munmap(p, N * PAGE) == 0);
    p = map(p, N * PAGE);
  }
  // Only the middle is new.
  CHECK(touch(p, N) == 0);
  CHECK(munmap(p + 16 * PAGE, 16 * PAGE) == 0);
  CHECK(touch(p, 16) == 16 && touch(p + 32 * PAGE, N - 32) == N - 32);
  map(p + 16 * PAGE, 16 * PAGE);
  CHECK(touch(p, N) == (N - 16) * 2);
  CHECK(munmap(p, N * PAGE) == 0);
}

static void much(void) {
  enum { PIECES = 16 };
  const size_t GIB = (size_t)1 << 30;
  char *p[PIECES];
  for (int i = 0; i < PIECES; ++i) {
    p[i] = map(NULL, GIB);
    p[i][GIB - PAGE] = 1;
    CHECK(touch(p[i] + GIB - PAGE, 1) == 1 && touch(p[i], 1) == 0);
    CHECK(p[i][GIB - PAGE] == 2 && p[i][0] == 1);
  }
  for (int i = 0; i < PIECES; ++i)
    CHECK(munmap(p[i], GIB) == 0);
}

static void moves(void) {
  size_t n = 100 * PAGE;
  char *p = malloc(n), *first = p;
  fill((unsigned char *)p, n, 1);
  for (int round = 0; round < 4; ++round) {
    size_t wrong = 0;
#pragma omp target map(from : wrong)
    {
      wrong = differences((unsigned char *)p, n, 1);
      p[n - 1]++;
    }
    CHECK(wrong == 0);
    p[n - 1]--;
    CHECK(differences((unsigned char *)p, n, 1) == 0);
    void *keep = malloc(100);
    p = realloc(p, 2 * n);
    CHECK(p && keep);
    fill((unsigned char *)p, n *= 2, 1);
    free(keep);
  }
  (void)first;
  free(p);
  // And one that moves for certain.
  p = map(NULL, N * PAGE);
  CHECK(touch(p, N) == 0);
  char *to = map(NULL, 2 * N * PAGE);
  CHECK(touch(to, N) == 0);
  // Not the C library's function, which UCX replaces by one that ignores the last argument.
  long moved = syscall(SYS_mremap, p, N * PAGE, N * PAGE,
                       MREMAP_MAYMOVE | MREMAP_FIXED, to);
  CHECK((char *)moved == to);
  CHECK(touch(to, 2 * N) == N);
  CHECK(munmap(to, 2 * N * PAGE) == 0);
}

/// A low address, and a high one.
static void fixed(void) {
  // Chance may have placed something at the high one.
  char *low = map((void *)0x200000, PAGE), *high = (char *)0x7f0000000000;
  for (; mmap(high, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != high;
       high += 1l << 30)
    CHECK(errno == EEXIST);
  low[0] = 1, high[0] = 2;
  CHECK(touch(low, 1) == 1 && touch(high, 1) == 2 && low[0] == 2 && high[0] == 3);
  CHECK(munmap(low, PAGE) == 0 && munmap(high, PAGE) == 0);
}

/// Where the device has its C library, its heap and its stack.
static void of_the_device(void) {
  long at[3] = {0}, *a = at;
#pragma omp target
  {
    int local;
    a[0] = (long)getpid;
    a[1] = (long)malloc(10 * PAGE);
    a[2] = (long)&local;
  }
  for (int i = 0; i < 3; ++i) {
    void *wanted = (void *)(at[i] & -PAGE);
    CHECK(at[i] != 0);
    CHECK(mmap(wanted, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED);
    CHECK(errno == EEXIST);
    // A wish only.
    char *p = mmap(wanted, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && p != wanted);
    p[0] = 7;
    CHECK(touch(p, 1) == 7 && p[0] == 8);
    CHECK(munmap(p, PAGE) == 0);
  }
}

int main(void) {
  need_devices(1);
  again();
  much();
  moves();
  fixed();
  of_the_device();
  return 0;
}
