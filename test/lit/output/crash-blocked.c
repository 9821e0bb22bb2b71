// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region prints more than the program can write for a while, and crashes. The device waits until its output is taken,
// however long that is, and then reports the crash.
//
// RUN: %clang %s -o %t
// RUN: %run1 --rc fail %t 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV|signal 11"
// REQUIRES: plugin

#include "offload.h"
#include <pthread.h>

// More than a pipe holds and a device sends ahead, and longer than a fault may take that nobody can report.
enum { Lines = 60000, Pause = 12 };

static int ends[2];

static void *reader(void *unused) {
  char bytes[4096];
  sleep(Pause);
  while (read(ends[0], bytes, sizeof bytes) > 0)
    ;
  return unused;
}

int main(void) {
  need_devices(1);
  pthread_t thread;
  CHECK(!pipe(ends) && dup2(ends[1], 1) == 1);
  CHECK(!pthread_create(&thread, 0, reader, 0));
#pragma omp target device(0)
  {
    for (int i = 0; i < Lines; ++i)
      printf("line %d of a region\n", i);
    *(volatile int *)16 = 1;
  }
  return 0;
}
