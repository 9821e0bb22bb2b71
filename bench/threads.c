// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What regions cost that many threads of the program run at once on one device, each with arrays of 400 to
// 80,000 bytes: compiled with UNIFIED, the program requires unified shared memory. Prints "name<TAB>seconds".
//
//   threads here|elsewhere

#ifdef UNIFIED
#pragma omp requires unified_shared_memory
#endif

#include "place.h"
#include "sample.h"
#include <pthread.h>
#include <stdint.h>

enum { MOST = 300, REGIONS = 6 };

static void *run(void *number) {
  unsigned me = (unsigned)(uintptr_t)number, random = me;
  for (int region = 0; region < REGIONS; ++region) {
    random = random * 1103515245 + 12345;
    unsigned n = 100 + (random >> 8) % 19901;
    unsigned *a = memory(n * sizeof *a);
    fill(a, n * sizeof *a, me);
#pragma omp target map(tofrom : a[ : n])
    for (unsigned i = 0; i < n; ++i)
      a[i] += 1;
    for (unsigned i = 0; i < n; ++i)
      check(a[i] == (i + me) * 2654435761u + 1, "what a region has changed");
    free(a);
  }
  return NULL;
}

static void measure_threads(unsigned n) {
  pthread_t threads[MOST];
  // As many regions with few threads as with many, for the time to be as long.
  unsigned rounds = MOST / n;
  double begin = now();
  for (unsigned round = 0; round < rounds; ++round) {
    for (unsigned i = 0; i < n; ++i)
      check(!pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)(i + 1)), "a thread");
    for (unsigned i = 0; i < n; ++i)
      pthread_join(threads[i], NULL);
  }
  printf("%u threads\t%.9f\n", n, (now() - begin) / (rounds * n * REGIONS));
  fflush(stdout);
}

int main(int argc, char **argv) {
  check(argc == 2, "usage: threads here|elsewhere");
  check_place(0, argv[1]);
  const unsigned counts[] = {1, 8, 64, MOST};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i)
    measure_threads(counts[i]);
  return 0;
}
