// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where what a region prints can't be written for a while, only those wait that have to: other
// threads' regions go on, and nobody takes the devices for dead. Text is neither lost nor
// reordered.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_HEARTBEAT=2 %run2 %t pipe
// RUN: env OMPTARGET_MPI_HEARTBEAT=2 %run2 %t lock
// REQUIRES: plugin

#include "offload.h"
#include <pthread.h>

// More than a pipe holds, and long enough for a device to be given up twice.
enum { Lines = 20000, Pause = 9 };

static int ends[2];
static volatile int printing, done;

// Reads what the program prints, which it does not begin to do for some seconds.
static void *reader(void *text_of_lines) {
  sleep(Pause);
  FILE *in = fdopen(ends[0], "r");
  char line[64], expected[64];
  for (int i = 0; i < Lines; ++i) {
    snprintf(expected, sizeof expected, (const char *)text_of_lines, i);
    CHECK(fgets(line, sizeof line, in) && !strcmp(line, expected));
  }
  return 0;
}

static void print_lines(int device) {
  for (int i = 0; i < Lines; i += 100) {
    printing = 1;
#pragma omp target device(device)
    for (int k = i; k < i + 100; ++k)
      printf("line %d of a region\n", k);
  }
}

// Regions that print nothing, on the last device.
static int run_regions(void) {
  int count = 0;
#pragma omp target map(tofrom : count) device(omp_get_num_devices() - 1)
  count++;
  return count;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(omp_get_num_devices());
  int locks = !strcmp(argv[1], "lock");
  int out = dup(1);
  pthread_t thread;
  CHECK(!pipe(ends) && out >= 0 && dup2(ends[1], 1) == 1);
  CHECK(!pthread_create(&thread, 0, reader, "line %d of a region\n"));
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 0) {
    if (locks)
      while (!printing)
        ;
    print_lines(0);
    done = 1;
  } else if (locks) {
    // Another thread can't write anything meanwhile.
    flockfile(stdout);
    printing = 1;
    for (double end = omp_get_wtime() + Pause; omp_get_wtime() < end;)
      CHECK(run_regions() == 1);
    funlockfile(stdout);
  } else {
    while (!done)
      CHECK(run_regions() == 1);
  }
  CHECK(!pthread_join(thread, 0) && dup2(out, 1) == 1);
  return 0;
}
