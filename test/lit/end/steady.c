// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A long run needs no more memory than a short one: after 20,000 regions with
// data, allocations and deferred regions among them, host and device are as
// large as after 5,000, give or take 10 MiB. On a slow machine there are fewer.
//
// RUN: %clang %s -o %t
// RUN: %run1 --timeout 200 %t

#include "offload.h"
#include <time.h>

// The device has large pages of 2 MiB: a few more are no leak, a block of each call is.
enum { EARLY = 5000, FEW = 8000, LATE = 20000, SECONDS = 25, SLACK = 10 << 20 };

#pragma omp declare target
/// Resident bytes of this process.
static long resident(void) {
  long all = 0, pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  int read = fscanf(statm, "%ld %ld", &all, &pages);
  fclose(statm);
  return read == 2 ? pages * sysconf(_SC_PAGESIZE) : -1;
}
#pragma omp end declare target

// clang 16 takes stack for each region that one call of a function executes.
static __attribute__((noinline)) void region(int i) {
  int x = i;
#pragma omp target map(tofrom : x)
  x += 1;
  CHECK(x == i + 1);
}

static __attribute__((noinline)) void block(int i) {
  static int a[20000];
  int n = i % 20000;
#pragma omp target map(tofrom : a[0 : n])
  for (int k = 0; k < n; ++k)
    a[k] += 1;
}

static __attribute__((noinline)) void deferred(int i) {
  int x = i;
#pragma omp target nowait map(tofrom : x)
  x += 1;
#pragma omp taskwait
  CHECK(x == i + 1);
}

static __attribute__((noinline)) void allocation(int i) {
  void *p = omp_target_alloc(1 + i % 100000, 0);
  CHECK(p != NULL);
  omp_target_free(p, 0);
}

static __attribute__((noinline)) long resident_there(void) {
  long there = 0;
#pragma omp target map(tofrom : there)
  there = resident();
  return there;
}

int main(void) {
  need_devices(1);
  long here = 0, there = 0;
  time_t begin = time(NULL);
  for (int i = 1; i <= LATE && (i <= FEW || time(NULL) - begin < SECONDS); ++i) {
    region(i);
    if (i % 8 == 0)
      block(i);
    if (i % 8 == 1)
      deferred(i);
    if (i % 8 == 2)
      allocation(i);
    if (i == EARLY) {
      there = resident_there();
      here = resident();
    }
  }
  long more_there = resident_there() - there, more_here = resident() - here;
  printf("host %ld kB and %ld more, device %ld kB and %ld more\n", here / 1024,
         more_here / 1024, there / 1024, more_there / 1024);
  CHECK(here > 0 && there > 0 && more_here < SLACK && more_there < SLACK);
  return 0;
}
