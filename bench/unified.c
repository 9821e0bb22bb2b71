// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What regions cost that use the program's memory instead of mapped memory: compiled with
// UNIFIED, the program requires unified shared memory, and its maps copy nothing. Compiled with
// FAR, it measures less, for a device that is milliseconds away. Prints "name<TAB>seconds".
//
//   unified here|elsewhere

#ifdef UNIFIED
#pragma omp requires unified_shared_memory
#endif

#include "place.h"
#include "sample.h"
#include <omp.h>
#include <sys/mman.h>

#ifdef FAR
#define AWAY ", 1 ms away"
#define SIZE "64 MiB" AWAY
enum { TRIALS = 5, LEN = 8 << 20 };
#else
#define AWAY ""
#define SIZE "256 MiB"
enum { TRIALS = 7, LEN = 32 << 20, NODES = 100000 };
#endif

static double took[TRIALS];

static void report(const char *name) {
  qsort(took, TRIALS, sizeof *took, ascending);
  printf("%s\t%.9f\n", name, took[TRIALS / 2]);
  fflush(stdout);
}

static double sum(const double *a) {
  double sum = 0;
#pragma omp target teams distribute parallel for map(to : a[ : LEN]) map(tofrom : sum) reduction(+ : sum)
  for (int i = 0; i < LEN; ++i)
    sum += a[i];
  return sum;
}

static void increment(double *a) {
#pragma omp target teams distribute parallel for map(tofrom : a[ : LEN])
  for (int i = 0; i < LEN; ++i)
    a[i] += 1;
}

// Memory that no region has used yet.
static double *fresh(void) {
  double *a = mmap(NULL, LEN * sizeof *a, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(a != MAP_FAILED, "no memory");
  for (int i = 0; i < LEN; ++i)
    a[i] = i % 1024;
  return a;
}

static void stream(void) {
  const double expected = LEN / 1024 * (1023 * 512.0);
  double *a = NULL, again[TRIALS], written[TRIALS];
  for (int trial = 0; trial < TRIALS; ++trial) {
    a = fresh();
    double begin = now();
    check(sum(a) == expected, "the sum");
    took[trial] = now() - begin;
    begin = now();
    check(sum(a) == expected, "the same sum again");
    again[trial] = now() - begin;
    begin = now();
    increment(a);
    written[trial] = now() - begin;
    check(sum(a) == expected + LEN, "the sum after the increment");
    munmap(a, LEN * sizeof *a);
  }
  report("read " SIZE);
  memcpy(took, again, sizeof took);
  report("read " SIZE ", again");
  memcpy(took, written, sizeof took);
  report("read and write " SIZE);
}

static void empty_region(void) {
#pragma omp target
  {}
}

#if defined UNIFIED && !defined FAR
typedef struct Node {
  struct Node *next;
  long value;
} Node;

static Node *first;

static void walk(void) {
  long sum = 0;
#pragma omp target map(tofrom : sum) map(to : first)
  for (Node *node = first; node; node = node->next)
    sum += node->value;
  check(sum == (long)NODES * (NODES - 1) / 2, "the list's sum");
}

// A list in random order.
static void build(void) {
  Node *nodes = memory(NODES * sizeof *nodes);
  int *order = memory(NODES * sizeof *order);
  for (int i = 0; i < NODES; ++i)
    order[i] = i;
  srand(1);
  for (int i = NODES - 1; i > 0; --i) {
    int other = rand() % (i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  for (int i = 0; i < NODES; ++i)
    nodes[order[i]] = (Node){i + 1 < NODES ? &nodes[order[i + 1]] : NULL, i};
  first = &nodes[order[0]];
  free(order);
}
#endif

int main(int argc, char **argv) {
  check(argc == 2, "usage: unified here|elsewhere");
  check_place(0, argv[1]);
  measure("empty region" AWAY, empty_region);
  stream();
#if defined UNIFIED && !defined FAR
  build();
  measure("list of 100,000 nodes", walk);
#endif
  return 0;
}
