// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Six deferred kernels on one device that all wait for a seventh: the device
// runs as many at once as the program has in flight.
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: %run1 %t
// With tiny limits a device has fewer threads than these.
// UNSUPPORTED: tiny-limits

#include "offload.h"

#pragma omp declare target
static int flag;
int running;
#pragma omp end declare target

enum { WAITING = 6, LONG = 60 * 1000 };

int main(void) {
  need_devices(1);
  int waited[WAITING];
#pragma omp parallel num_threads(WAITING + 1)
  {
    int me = omp_get_thread_num(), ms = 0;
    if (me < WAITING) {
#pragma omp target map(tofrom : ms)
      {
        __atomic_add_fetch(&running, 1, __ATOMIC_ACQ_REL);
        while (!__atomic_load_n(&flag, __ATOMIC_ACQUIRE) && ms < LONG) {
          usleep(1000);
          ++ms;
        }
      }
      waited[me] = ms;
    } else {
      while (running < WAITING) {
#pragma omp target update from(running)
      }
#pragma omp target
      __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    }
  }
  for (int i = 0; i < WAITING; ++i)
    CHECK(waited[i] < LONG);
  return 0;
}
