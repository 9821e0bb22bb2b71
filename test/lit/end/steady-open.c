// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// While one region stays open, hundreds of thousands of others leave nothing behind in the
// program: as many as run in 40 s, which are some thousands on the slowest machine.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t
// REQUIRES: plugin

#include "offload.h"
#include <time.h>

enum { Warm = 20000, Few = 5000, Regions = 250000, Seconds = 40, Limit = 8 << 20 };

// Bytes of this process that are in memory.
static long resident(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%*s %ld", &pages) == 1);
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

// Not inlined: clang takes stack for each region that one call of a function runs.
__attribute__((noinline)) static void region(int i) {
  int x = i;
#pragma omp target map(tofrom : x)
  x++;
  CHECK(x == i + 1);
}

int main(void) {
  need_devices(1);
  int *go = omp_target_alloc(sizeof *go, 0), value = 0, host = omp_get_initial_device();
  CHECK(go && !omp_target_memcpy(go, &value, sizeof value, 0, 0, 0, host));
  long before = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
  {
#pragma omp target nowait is_device_ptr(go)
    while (!*(volatile int *)go)
      usleep(1000);
    time_t begin = time(NULL);
    for (int i = 0; i < Warm + Regions && (i < Warm + Few || time(NULL) - begin < Seconds); ++i) {
      if (i == Warm)
        before = resident();
      region(i);
    }
    long grown = resident() - before;
    printf("grown by %ld KiB\n", grown >> 10);
    CHECK(grown < Limit);
    value = 1;
    CHECK(!omp_target_memcpy(go, &value, sizeof value, 0, 0, 0, host));
  }
  return 0;
}
