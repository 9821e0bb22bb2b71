// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels take that use all of a device's cores, one after the other, and programs
// of many small constructs. Prints "name<TAB>seconds".
//
//   kernels here|elsewhere
//
// fails unless its regions run in this process (the stock host plugin) or in another
// (MPI devices).

#include "place.h"
#include "sample.h"
#include <math.h>

enum { BLOCKS = 4096, BLOCK = 256, N = 4 << 20, SIDE = 2048 };

static double *a, *b, *c;

#define PRESENT map(to : a[0 : N], b[0 : N], c[0 : N])

// A one-dimensional stencil, block by block; each team has two loops with barriers.
static void blocks(void) {
#pragma omp target teams distribute PRESENT
  for (int block = 0; block < BLOCKS; ++block) {
    double part[BLOCK];
    int first = block * BLOCK;
#pragma omp parallel for
    for (int i = 0; i < BLOCK; ++i)
      part[i] = a[first + i] + a[first + i + 1];
#pragma omp parallel for
    for (int i = 0; i < BLOCK; ++i)
      b[first + i] = 0.5 * part[i];
  }
}

static void stencil(void) {
#pragma omp target teams distribute parallel for PRESENT
  for (int y = 1; y < SIDE - 1; ++y)
    for (int x = 1; x < SIDE - 1; ++x) {
      int i = y * SIDE + x;
      b[i] = 0.25 * (a[i - 1] + a[i + 1] + a[i - SIDE] + a[i + SIDE]);
    }
}

static void transpose(void) {
#pragma omp target teams distribute parallel for PRESENT
  for (int x = 0; x < SIDE; ++x)
    for (int y = 0; y < SIDE; ++y)
      c[x * SIDE + y] = a[y * SIDE + x];
}

static void triad(void) {
#pragma omp target teams distribute parallel for PRESENT
  for (int i = 0; i < N; ++i)
    c[i] = a[i] + 3 * b[i];
}

static void copy(void) {
#pragma omp target teams distribute parallel for PRESENT
  for (int i = 0; i < N; ++i)
    b[i] = a[i];
}

static int length;

static void roots(void) {
#pragma omp target teams distribute parallel for PRESENT
  for (int i = 0; i < length; ++i)
    c[i] = sqrt(a[i] + i);
}

enum { FEW = 4096, SMALL = 26 * 1024 / sizeof(double), LARGE = 57 * 1024 / sizeof(double), ROUNDS = 100 };

static int added;

// Many constructs of a few microseconds.
static void regions_and_updates(void) {
  for (int round = 0; round < ROUNDS; ++round) {
    for (int k = 0; k < 3; ++k) {
#pragma omp target PRESENT
      for (int i = 0; i < FEW; ++i)
        b[i] += a[i];
      ++added;
    }
#pragma omp target update to(a[0 : SMALL])
#pragma omp target update to(a[0 : LARGE])
#pragma omp target update from(b[0 : SMALL])
#pragma omp target update from(b[0 : LARGE])
  }
}

// What `measure` does, for kernels that take turns: each finds the caches and the team as
// the one before has left them.
static void in_turn(void) {
  static const struct {
    const char *name;
    void (*call)(void);
  } kernels[] = {{"2-D stencil", stencil}, {"transpose", transpose}, {"triad", triad}, {"copy", copy}};
  enum { KERNELS = sizeof kernels / sizeof *kernels, CALLS = 40, WARM = 3 };
  static double took[KERNELS][CALLS];
  for (int n = -WARM; n < CALLS; ++n)
    for (int k = 0; k < KERNELS; ++k) {
      double begin = now();
      kernels[k].call();
      if (n >= 0)
        took[k][n] = now() - begin;
    }
  for (int k = 0; k < KERNELS; ++k) {
    qsort(took[k], CALLS, sizeof(double), ascending);
    printf("%s\t%.9f\n", kernels[k].name, took[k][CALLS / 2]);
  }
}

int main(int argc, char **argv) {
  check(argc == 2, "kernels here|elsewhere");
  check_place(0, argv[1]);
  a = memory(N * sizeof *a);
  b = memory(N * sizeof *b);
  c = memory(N * sizeof *c);
  for (int i = 0; i < N; ++i)
    a[i] = i % 1000, b[i] = c[i] = 0;
#pragma omp target data map(tofrom : a[0 : N], b[0 : N], c[0 : N])
  {
    in_turn();
    measure("blocks with barriers", blocks);
    length = 20000;
    measure("short kernels", roots);
    length = 200000;
    measure("longer kernels", roots);
    measure("regions and updates", regions_and_updates);
  }
  for (int i = 0; i < N; ++i) {
    double copied = i < BLOCKS * BLOCK ? 0.5 * (a[i] + a[i + 1]) : a[i];
    check(b[i] == copied + (i < FEW ? added * a[i] : 0), "what kernels stored in b");
    int x = i % SIDE, y = i / SIDE, inside = x > 0 && x < SIDE - 1 && y > 0 && y < SIDE - 1;
    double smooth = inside ? 0.25 * (a[i - 1] + a[i + 1] + a[i - SIDE] + a[i + SIDE]) : a[i];
    check(c[i] == (i < length ? sqrt(a[i] + i) : a[i] + 3 * smooth), "what kernels stored in c");
  }
  return 0;
}
