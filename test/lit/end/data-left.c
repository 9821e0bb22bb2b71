// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A detached thread waits for data of a region that still runs when the program ends: the program ends with its own
// status, and before that region does.
//
// REQUIRES: plugin
// Elsewhere nothing ends the devices with status 0: the job ends with an error after 10 s.
// REQUIRES: openmpi
// The statuses are those of LLVM 16's libomptarget and libomp.
// REQUIRES: llvm16
//
// RUN: %clang %s -o %t -pthread
// Open MPI 4.1's mpirun itself crashes or hangs in one of a hundred aborts on a loaded machine (PMIx_server_finalize).
// RUN: %run1 --timeout 40 %t || %run1 --timeout 40 %t

#include "offload.h"
#include <pthread.h>

enum { SIZE = 64 << 20 };
static char *data;

static void *use_device(void *unused) {
  (void)unused;
#pragma omp target map(from : data[0 : SIZE])
  {
    data[0] = 1;
    sleep(60);
  }
  return NULL;
}

int main(void) {
  need_devices(1);
  data = malloc(SIZE);
  pthread_t thread;
  CHECK(data && pthread_create(&thread, NULL, use_device, NULL) == 0 && pthread_detach(thread) == 0);
  sleep(1);
  return 0;
}
