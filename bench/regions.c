// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What regions and copies cost on one device through libomptarget, whichever plugin
// serves it. Prints "name<TAB>seconds".
//
//   regions here|elsewhere
//
// fails unless its regions run in this process (the stock host plugin) or in another
// (MPI devices).

#include "place.h"
#include "sample.h"
#include <omp.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * KIB, PAGE = 4 * KIB, WORDS = MIB / sizeof(int) };

static int host;

// Counts regions where they run, so that even an empty one can be checked.
#pragma omp declare target
static int ran;
#pragma omp end declare target

static int expected;

static void empty_region(void) {
  ++expected;
#pragma omp target
  ++ran;
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

static char *some;
static size_t some_size;

static void map_some(void) {
  ++calls;
#pragma omp target map(tofrom : some[0 : some_size])
  ++some[some_size - 1];
}

static void regions_of_sizes(void) {
  some = memory(MIB);
  for (some_size = 64; some_size <= MIB; some_size *= 4) {
    char name[64];
    snprintf(name, sizeof name, "map %zu", some_size);
    calls = some[some_size - 1] = 0;
    measure(name, map_some);
    check(some[some_size - 1] == (char)calls, "mapped bytes");
  }
  free(some);
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

  omp_target_free(there, 0);
  free(source);
  free(back);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: regions here|elsewhere\n");
    return 2;
  }
  check(omp_get_num_devices() > 0, "no devices");
  host = omp_get_initial_device();
  check_place(0, argv[1]);

  measure("empty region", empty_region);
  int there = 0;
#pragma omp target map(from : there)
  there = ran;
  check(there == expected, "number of regions that ran");

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

  regions_of_sizes();

  for (size_t size = PAGE; size <= 256 * MIB; size *= 16)
    copies(size);
  return 0;
}
