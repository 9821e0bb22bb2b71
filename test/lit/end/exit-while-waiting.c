// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The main thread ends the process while another thread waits for a region: the
// status is the program's, not that of an abort.
//
// RUN: %clang %s -o %t -pthread
// RUN: %run1 --rc 7 --timeout 40 %t %t.begun

#include "offload.h"
#include <fcntl.h>
#include <pthread.h>

static char begun[400];

static void *wait_long(void *unused) {
#pragma omp target map(to : begun) device(0)
  {
    close(open(begun, O_CREAT | O_WRONLY, 0600));
    // Returns into the image's code again and again.
    for (int i = 0; i < 20000; i++)
      usleep(1000);
  }
  return unused;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  strncpy(begun, argv[1], sizeof begun - 1);
  unlink(begun);
  need_devices(1);
  pthread_t thread;
  pthread_create(&thread, NULL, wait_long, NULL);
  while (access(begun, F_OK))
    usleep(1000);
  exit(7);
}
