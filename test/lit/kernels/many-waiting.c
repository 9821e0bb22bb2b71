// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Many regions wait for what the program copies to the device's memory behind them. (With tiny
// limits these are more than the device has threads, and more messages than it gets at once.)
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: %run1 %t 40
// LLVM 14 and 15 hold a hidden helper thread for each region, of which there are eight.
// UNSUPPORTED: llvm14, llvm15

#include "offload.h"

enum { Large = 100000 };

static int data[Large];

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(1);
  int regions = atoi(argv[1]), host = omp_get_initial_device();
  // The last number of these is the signal.
  int *go = omp_target_alloc(sizeof data, 0);
  CHECK(go && !omp_target_memcpy(go, data, sizeof data, 0, 0, 0, host));
  int *done = calloc(regions, sizeof *done);
#pragma omp parallel num_threads(2)
#pragma omp single
  {
    for (int i = 0; i < regions; ++i) {
#pragma omp target nowait map(from : done[i]) is_device_ptr(go)
      {
        while (!((volatile int *)go)[Large - 1])
          usleep(1000);
        done[i] = i + 1;
      }
    }
    data[Large - 1] = 1;
    CHECK(!omp_target_memcpy(go, data, sizeof data, 0, 0, 0, host));
  }
  for (int i = 0; i < regions; ++i)
    CHECK(done[i] == i + 1);
  free(done);
  omp_target_free(go, 0);
  return 0;
}
