// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What several devices cost and do at once. Prints "name<TAB>seconds".
//
//   scale here|elsewhere turns     an empty region on device 0, and one on each in turn
//   scale here|elsewhere threads   empty regions by as many threads as devices, each on its own
//   scale here|elsewhere tasks     nowait regions on each in turn
//   scale here|elsewhere between   copies from device 0 to device 1
//   scale here|elsewhere overlap   things that should not wait for each other
//   scale here|elsewhere first     one empty region: for what it takes from start to end
//   scale here|elsewhere rest      what the process of an idle device uses: processor time in
//                                  each second, and memory in units of 1e9 bytes
//
// here, elsewhere: see place.h.

#include "place.h"
#include "sample.h"
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, LARGE = 64 * MIB, SHORT_REGIONS = 2000 };

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

enum { BY_EACH = 100 };

static void regions_by_threads(void) {
#pragma omp parallel num_threads(devices)
  for (int i = 0; i < BY_EACH; ++i) {
#pragma omp target device(omp_get_thread_num())
    {}
  }
}

// Counts regions where they run, so that even an empty one can be checked.
#pragma omp declare target
static int ran;
#pragma omp end declare target

static int expected; // the sum of `ran` over the devices

static void tasks(void) {
  for (int i = 0; i < 1000; ++i) {
    ++expected;
#pragma omp target nowait device(i % devices)
    {
#pragma omp atomic
      ++ran;
    }
  }
#pragma omp taskwait
}

static int sum_of_ran(void) {
  int sum = 0;
  for (int d = 0; d < devices; ++d) {
    int there = 0;
#pragma omp target device(d) map(from : there)
    there = ran;
    sum += there;
  }
  return sum;
}

static void *on_first, *on_second;
static size_t size;

static void copy_between(void) {
  check(!omp_target_memcpy(on_second, on_first, size, 0, 0, 1, 0), "omp_target_memcpy");
}

static void between(void) {
  int host = omp_get_initial_device();
  check(devices > 1, "two devices are needed");
  for (size = 4 * KIB; size <= 256 * MIB; size *= 16) {
    unsigned *source = memory(size), *back = memory(size);
    fill(source, size, (unsigned)size);
    memset(back, 0, size);
    on_first = omp_target_alloc(size, 0), on_second = omp_target_alloc(size, 1);
    check(on_first && on_second, "omp_target_alloc");
    check(!omp_target_memcpy(on_first, source, size, 0, 0, 0, host), "omp_target_memcpy");
    char name[64];
    snprintf(name, sizeof name, "device to device %zu", size);
    measure(name, copy_between);
    check(!omp_target_memcpy(back, on_second, size, 0, 0, host, 1) && !memcmp(source, back, size),
          "what came back from the other device");
    omp_target_free(on_second, 1);
    omp_target_free(on_first, 0);
    free(source);
    free(back);
  }
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

// Medians: single trials differ several times.
static void short_beside_long(void) {
  enum { TRIALS = 21 };
  double alone[TRIALS], beside[TRIALS];
  for (int i = 0; i < TRIALS; ++i) {
    alone[i] = once(short_regions);
    long_region(0);
    usleep(5000); // it runs by now
    beside[i] = once(short_regions);
#pragma omp taskwait
  }
  qsort(alone, TRIALS, sizeof *alone, ascending);
  qsort(beside, TRIALS, sizeof *beside, ascending);
  report("short regions alone", alone[TRIALS / 2]);
  report("short regions beside a long one", beside[TRIALS / 2]);
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
  short_beside_long();
  report("long region on one device", once(long_on_first));
  report("long region on every device", once(long_on_all));
  measure("64 MiB to two devices one by one", copies_one_by_one);
  measure("64 MiB to two devices at once", copies_at_once);
}

// What the process has used in which device 0 runs regions.
static void used(double *processor, double *bytes) {
  double seconds, most;
#pragma omp target map(from : seconds, most) device(0)
  {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    seconds = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    most = 1024.0 * (double)u.ru_maxrss;
  }
  *processor = seconds, *bytes = most;
}

static void rest(void) {
  enum { SETTLE = 1, REST = 3 };
  double before, after, bytes;
  used(&before, &bytes);
  sleep(SETTLE); // libomp's threads spin for a while after a region
  used(&before, &bytes);
  sleep(REST);
  used(&after, &bytes);
  report("processor", (after - before) / REST);
  report("memory", bytes * 1e-9);
}

int main(int argc, char **argv) {
  const char *what = argc == 3 ? argv[2] : "";
  devices = omp_get_num_devices();
  check(devices > 0, "no devices");
  if (strcmp(what, "first") == 0) {
    region_on_first();
    return 0;
  }
  for (int d = 0; d < devices; ++d)
    check_place(d, argv[1]);
  if (strcmp(what, "turns") == 0) {
    measure("region on device 0", region_on_first);
    measure("region in turn", region_in_turn);
  } else if (strcmp(what, "threads") == 0) {
    measure("100 regions by each thread", regions_by_threads);
  } else if (strcmp(what, "tasks") == 0) {
    measure("1000 nowait", tasks);
    check(sum_of_ran() == expected, "number of nowait regions that ran");
  } else if (strcmp(what, "between") == 0) {
    between();
  } else if (strcmp(what, "overlap") == 0) {
    overlap();
  } else if (strcmp(what, "rest") == 0) {
    rest();
  } else {
    fprintf(stderr, "usage: scale here|elsewhere turns|threads|tasks|between|overlap|first|rest\n");
    return 2;
  }
  return 0;
}
