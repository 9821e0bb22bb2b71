// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What constructs cost whose device is milliseconds away. Prints "name<TAB>seconds".
//
//   far elsewhere
//
// fails unless its regions run in another process.

#include "place.h"
#include "sample.h"
#include <omp.h>

enum { SMALL = 4096, LARGE = 60000, MANY = 100 };

static unsigned char bytes[LARGE];
static int *counter;

static void round_trip(void) {
#pragma omp target is_device_ptr(counter)
  *counter = 0;
  int zero;
  omp_target_memcpy(&zero, counter, sizeof zero, 0, 0, omp_get_initial_device(), 0);
}

// Ends when the device has all that was sent before.
static void last_byte(void) {
#pragma omp target update from(bytes[LARGE - 1 : 1])
}

static void small_updates(void) {
  for (int i = 0; i < MANY; ++i) {
    bytes[0] = (unsigned char)i;
#pragma omp target update to(bytes[0 : SMALL])
  }
  last_byte();
}

static void large_updates(void) {
  for (int i = 0; i < MANY; ++i) {
    bytes[LARGE - 1] = (unsigned char)i;
#pragma omp target update to(bytes)
  }
  last_byte();
  check(bytes[LARGE - 1] == MANY - 1, "the last update");
}

static void kernels(void) {
  int count = 0;
  omp_target_memcpy(counter, &count, sizeof count, 0, 0, 0, omp_get_initial_device());
  for (int i = 0; i < MANY; ++i) {
#pragma omp target is_device_ptr(counter)
    ++*counter;
  }
  omp_target_memcpy(&count, counter, sizeof count, 0, 0, omp_get_initial_device(), 0);
  check(count == MANY, "the count of kernels");
}

int main(int argc, char **argv) {
  check(argc == 2, "far elsewhere");
  check_place(0, argv[1]);
  counter = omp_target_alloc(sizeof *counter, 0);
#pragma omp target data map(tofrom : bytes)
  {
    measure("an update from", last_byte);
    measure("a region and a copy of its result", round_trip);
    measure("100 updates to of 4 KiB, 1 from", small_updates);
    measure("100 updates to of 60 KB, 1 from", large_updates);
    measure("100 resident kernels, 1 update from", kernels);
  }
  omp_target_free(counter, 0);
  return 0;
}
