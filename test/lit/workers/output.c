// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region prints more than its device sends ahead, and its process is killed. The program took
// that output only after the end of another region, which in the replay ends after the output.
// The spare waits for neither, and each line is there once.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_SPARES=1 %run1 --no-files --timeout 60 %t %t.once %t.begun > %t.out 2> %t.err
// RUN: %line warning %t.err "worker 0 of rank 1" "0 spares are left"
// RUN: grep -c "^line [0-9]* of a region$" %t.out | grep -x 100000
// RUN: sort -u %t.out | wc -l | grep -x 100000

#include "offload.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

enum { Lines = 100000 };

#pragma omp declare target
static volatile int ended, printed;

/// False in the replay.
static int is_first(const char *once) { return !access(once, F_OK); }
#pragma omp end declare target

static char once[400], begun[400];

static void *print(void *unused) {
#pragma omp target map(to : once, begun)
  {
    int first = is_first(once);
    if (first)
      close(open(begun, O_CREAT, 0600));
    while (first && !ended)
      usleep(1000);
    for (int i = 0; i < Lines; ++i)
      printf("line %d of a region\n", i);
    printed = 1;
    if (first) {
      unlink(once);
      kill(getpid(), SIGKILL);
    }
  }
  return unused;
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  strncpy(once, argv[1], sizeof once - 1);
  strncpy(begun, argv[2], sizeof begun - 1);
  unlink(begun);
  close(open(once, O_CREAT, 0600));
  // Else the second region waits for the first one, which brings them.
#pragma omp target enter data map(to : once, begun)
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, print, NULL));
  while (access(begun, F_OK))
    usleep(1000);
#pragma omp target map(to : once)
  while (!is_first(once) && !printed)
    usleep(1000);
#pragma omp target
  ended = 1;
  CHECK(!pthread_join(thread, NULL));
  return 0;
}
