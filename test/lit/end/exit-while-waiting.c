// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The main thread ends the process while another thread waits for a region: the
// status is the program's, not that of an abort.
//
// RUN: %clang %s -o %t -pthread
// RUN: %run1 --rc 7 --timeout 40 %t

#include "offload.h"
#include <pthread.h>

static volatile int begun;

static void *wait_long(void *unused) {
  begun = 1;
#pragma omp target device(0)
  sleep(20);
  return unused;
}

int main(void) {
  need_devices(1);
  pthread_t thread;
  pthread_create(&thread, NULL, wait_long, NULL);
  while (!begun)
    usleep(1000);
  usleep(300000);
  exit(7);
}
