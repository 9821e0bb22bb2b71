// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program ends while other threads run regions, one of which fills a pipe whose reader
// pauses: the end takes seconds, in which no other thread continues.
//
// The statuses are those of LLVM 16's libomptarget and libomp.
// REQUIRES: llvm16
// REQUIRES: openmpi
//
// RUN: %clang %s -o %t -pthread
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --no-mpirun --rc 7 %t 7 | sh -c "sleep 3; cat" > %t.out
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --no-mpirun %t 0 | sh -c "sleep 3; cat" > %t.out

#include "offload.h"
#include <poll.h>
#include <pthread.h>

static void *run_regions(void *unused) {
  for (;;) {
    int x = 1;
#pragma omp target map(tofrom : x)
    x += 1;
    if (x != 2)
      _exit(99);
  }
  return unused;
}

static void *print(void *unused) {
  for (;;) {
#pragma omp target
    {
      char line[8192];
      memset(line, 'x', sizeof line);
      line[sizeof line - 1] = 0;
      puts(line);
      fflush(NULL); // stdout would be a pointer that is not mapped, see docs/user/limits.md
    }
  }
  return unused;
}

static void start(void *(*function)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  need_devices(1);
  for (int i = 0; i < 3; ++i)
    start(run_regions);
  start(print);
  // Until the pipe is full.
  struct pollfd out = {.fd = 1, .events = POLLOUT};
  while (poll(&out, 1, 0) == 1)
    usleep(1000);
  exit(atoi(argv[1]));
}
