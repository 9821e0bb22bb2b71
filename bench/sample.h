// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How both programs of the benchmark measure, report and give up.

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Prints the median of the seconds that a call takes: of as many calls as there is
// time for, within limits, after a few that do not count.
static void measure(const char *name, void (*call)(void)) {
  enum { WARM = 3, LEAST = 7, MOST = 20000 };
  static double took[MOST];
  for (int i = 0; i < WARM; ++i)
    call();
  int n = 0;
  double end = now() + 0.4;
  while (n < LEAST || (n < MOST && now() < end)) {
    double begin = now();
    call();
    took[n++] = now() - begin;
  }
  qsort(took, n, sizeof *took, ascending);
  printf("%s\t%.9f\n", name, took[n / 2]);
  fflush(stdout);
}

static void check(int right, const char *what) {
  if (!right) {
    fprintf(stderr, "WRONG: %s\n", what);
    exit(1);
  }
}

// Memory of no particular content.
static void *memory(size_t size) {
  void *p = malloc(size);
  check(p != NULL, "no memory");
  return p;
}

// Fills memory with bytes that differ from place to place, and from seed to seed.
static void fill(unsigned *p, size_t size, unsigned seed) {
  for (size_t i = 0; i < size / sizeof *p; ++i)
    p[i] = ((unsigned)i + seed) * 2654435761u;
}
