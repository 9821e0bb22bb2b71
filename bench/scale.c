// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What several devices cost and do at once. Prints "name<TAB>seconds".
//
//   scale turns     an empty region on device 0, and one on each device in turn
//   scale overlap   things that should not wait for each other
//   scale first     one empty region: for what it takes from start to end

#include "sample.h"
#include <omp.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, LARGE = 64 * MIB, SHORT_REGIONS = 200 };

static int devices, turn;

static void region_on_first(void) {
#pragma omp target device(0)
  {}
}

static void region_in_turn(void) {
#pragma omp target device(turn)
  {}
  turn = (turn + 1) % devices;
}

static double once(void (*call)(void)) {
  double begin = now();
  call();
  return now() - begin;
}

static void report(const char *name, double seconds) { printf("%s\t%.9f\n", name, seconds); }

static void short_regions(void) {
  for (int i = 0; i < SHORT_REGIONS; ++i)
    region_on_first();
}

// Sleeps, so that it keeps nobody from a core.
static void long_region(int device) {
#pragma omp target device(device) nowait
  usleep(50000);
}

static void long_on_first(void) {
  long_region(0);
#pragma omp taskwait
}

static void long_on_all(void) {
  for (int d = 0; d < devices; ++d)
    long_region(d);
#pragma omp taskwait
}

static char *source[2];

static void copy_to(int device) {
  char *from = source[device];
#pragma omp target update to(from[0 : LARGE]) device(device) nowait
}

static void copies_one_by_one(void) {
  for (int d = 0; d < 2; ++d) {
    copy_to(d);
#pragma omp taskwait
  }
}

static void copies_at_once(void) {
  for (int d = 0; d < 2; ++d)
    copy_to(d);
#pragma omp taskwait
}

static void overlap(void) {
  check(devices > 1, "two devices are needed");
  for (int d = 0; d < 2; ++d) {
    char *from = source[d] = memory(LARGE);
    memset(from, d, LARGE);
#pragma omp target enter data map(alloc : from[0 : LARGE]) device(d)
  }
  long_on_all();
  short_regions();
  report("short regions alone", once(short_regions));
  long_region(0);
  usleep(5000); // it runs by now
  report("short regions beside a long one", once(short_regions));
#pragma omp taskwait
  report("long region on one device", once(long_on_first));
  report("long region on every device", once(long_on_all));
  measure("64 MiB to two devices one by one", copies_one_by_one);
  measure("64 MiB to two devices at once", copies_at_once);
}

int main(int argc, char **argv) {
  const char *what = argc == 2 ? argv[1] : "";
  devices = omp_get_num_devices();
  check(devices > 0, "no devices");
  if (!strcmp(what, "first")) {
    region_on_first();
  } else if (!strcmp(what, "turns")) {
    for (int i = 0; i < devices; ++i)
      region_in_turn();
    measure("region on device 0", region_on_first);
    measure("region in turn", region_in_turn);
  } else if (!strcmp(what, "overlap")) {
    overlap();
  } else {
    fprintf(stderr, "usage: scale turns|overlap|first\n");
    return 2;
  }
  return 0;
}
