// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The OpenMP program of the benchmark: what regions and copies cost through
// libomptarget, whichever plugin serves it. Prints "name<TAB>seconds".
//
//   regions DEVICES here|elsewhere
//
// uses no more than DEVICES devices, and fails unless their regions run in this
// process (the stock host plugin) or in others (MPI devices).

#include "sample.h"
#include <omp.h>
#include <string.h>
#include <unistd.h>

enum { KIB = 1024, MIB = 1024 * KIB, PAGE = 4 * KIB, WORDS = MIB / sizeof(int) };

static int devices, host;

// Counts regions where they run, so that even an empty one can be checked.
#pragma omp declare target
static int ran;
#pragma omp end declare target

static int expected; // the sum of `ran` over the devices

static void empty_region(void) {
  ++expected;
#pragma omp target
  ++ran;
}

static void nowait_regions(void) {
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

static int calls, number;

static void map_int(void) {
  ++calls;
#pragma omp target map(tofrom : number)
  ++number;
}

static int page[PAGE / sizeof(int)];

static void map_page(void) {
  int a = ++calls, b = 2, c = 3, d = 4;
  long e = 5, f = 6;
  float g = 7;
  char h = 8;
#pragma omp target map(tofrom : page)
  {
    ++page[0];
    page[1] = a + b + c + d + (int)(e + f) + (int)g + h;
  }
}

static int block[WORDS];

static void resident_region(void) {
  int i = calls++;
#pragma omp target
  ++block[i];
}

#define TWENTY(X)                                                              \
  X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7), X(8), X(9), X(10), X(11),    \
      X(12), X(13), X(14), X(15), X(16), X(17), X(18), X(19)
#define ARRAY(N) array##N[PAGE]
#define NAME(N) array##N
#define COPY(N) array##N[PAGE - 1] = (char)(array##N[0] + N)
static char TWENTY(ARRAY);

static void data_20_arrays(void) {
#pragma omp target data map(tofrom : TWENTY(NAME))
  {}
}

static void check_20_arrays(void) {
#pragma omp target data map(tofrom : TWENTY(NAME))
  {
#pragma omp target
    TWENTY(COPY);
  }
  char *all[] = {TWENTY(NAME)};
  for (int i = 0; i < 20; ++i)
    check(all[i][PAGE - 1] == 1 + i, "arrays of target data");
}

static void alloc_and_free(void) {
  void *p = omp_target_alloc(MIB, 0);
  check(p != NULL, "omp_target_alloc");
  omp_target_free(p, 0);
}

static struct {
  void *to, *from;
  int to_device, from_device;
  size_t size;
} one;

static void copy(void) {
  int failed = omp_target_memcpy(one.to, one.from, one.size, 0, 0,
                                 one.to_device, one.from_device);
  check(!failed, "omp_target_memcpy");
}

static void measure_copies(const char *way) {
  char name[64];
  snprintf(name, sizeof name, "%s %zu", way, one.size);
  measure(name, copy);
}

static void copies(size_t size) {
  unsigned *source = memory(size), *back = memory(size);
  fill(source, size, (unsigned)size);
  memset(back, 0, size);
  one.size = size;

  void *there = omp_target_alloc(size, 0);
  check(there != NULL, "omp_target_alloc");
  one.from = source, one.from_device = host;
  one.to = there, one.to_device = 0;
  measure_copies("host to device");
  one.from = there, one.from_device = 0;
  one.to = back, one.to_device = host;
  measure_copies("device to host");
  check(!memcmp(source, back, size), "what came back from the device");

  if (devices > 1) {
    void *other = omp_target_alloc(size, 1);
    check(other != NULL, "omp_target_alloc");
    one.to = other, one.to_device = 1;
    measure_copies("device to device");
    memset(back, 0, size);
    check(!omp_target_memcpy(back, other, size, 0, 0, host, 1) &&
              !memcmp(source, back, size),
          "what came back from the other device");
    omp_target_free(other, 1);
  }
  omp_target_free(there, 0);
  free(source);
  free(back);
}

int main(int argc, char **argv) {
  if (argc != 3 || (devices = atoi(argv[1])) < 1) {
    fprintf(stderr, "usage: regions DEVICES here|elsewhere\n");
    return 2;
  }
  if (devices > omp_get_num_devices())
    devices = omp_get_num_devices();
  check(devices > 0, "no devices");
  host = omp_get_initial_device();
  int elsewhere = !strcmp(argv[2], "elsewhere");
  for (int d = 0; d < devices; ++d) {
    long process = 0;
#pragma omp target device(d) map(from : process)
    process = getpid();
    check(process && (process != getpid()) == elsewhere, "the plugin that runs regions");
  }

  measure("empty region", empty_region);
  check(sum_of_ran() == expected, "number of regions that ran");

  measure("map int", map_int);
  check(number == calls, "mapped int");

  calls = 0;
  measure("map 4 KiB", map_page);
  check(page[0] == calls && page[1] == calls + 35, "mapped 4 KiB");

  calls = 0;
#pragma omp target data map(tofrom : block)
  measure("resident 1 MiB", resident_region);
  for (int i = 0; i < WORDS; ++i)
    check(block[i] == (i < calls), "resident block");

  char *all[] = {TWENTY(NAME)};
  for (int i = 0; i < 20; ++i)
    memset(all[i], 1, PAGE);
  measure("data 20 x 4 KiB", data_20_arrays);
  check_20_arrays();

  measure("alloc and free", alloc_and_free);

  measure("1000 nowait", nowait_regions);
  check(sum_of_ran() == expected, "number of nowait regions that ran");

  for (size_t size = PAGE; size <= 256 * MIB; size *= 16)
    copies(size);
  return 0;
}
