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
// On a loaded machine mpirun itself crashes or hangs in one of a hundred aborts.
// RUN: %known mpirun-abort %run1 --timeout 40 %t %t.begun

#include "offload.h"
#include <fcntl.h>
#include <pthread.h>

enum { SIZE = 64 << 20 };
static char *data, begun[400];

static void *use_device(void *unused) {
  (void)unused;
#pragma omp target map(from : data[0 : SIZE]) map(to : begun)
  {
    data[0] = 1;
    close(open(begun, O_CREAT | O_WRONLY, 0600));
    sleep(60);
  }
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  strncpy(begun, argv[1], sizeof begun - 1);
  unlink(begun);
  need_devices(1);
  data = malloc(SIZE);
  pthread_t thread;
  CHECK(data && pthread_create(&thread, NULL, use_device, NULL) == 0 && pthread_detach(thread) == 0);
  while (access(begun, F_OK))
    usleep(1000);
  return 0;
}
