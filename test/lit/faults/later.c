// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device that is lost while no region waits for it, by a thread that an earlier kernel has
// left behind: copies to it fail, and the program goes on with the other device.
//
// RUN: %clang %s -o %t
// RUN: %run2 --timeout 40 --no-files %t 2> %t.err
// RUN: %line error %t.err "device 1 .rank 2 on host %hostname" "a thread that a kernel had started crashed" SIGSEGV

#include "offload.h"
#include <pthread.h>

#pragma omp declare target
static void *crash_later(void *unused) {
  usleep(100000);
  *(volatile int *)16 = 1;
  return unused;
}
#pragma omp end declare target

int main(void) {
  need_devices(2);
  int host = omp_get_initial_device(), n = 7, got = 0;
  int *there[2];
  for (int d = 0; d < 2; ++d) {
    there[d] = (int *)omp_target_alloc(sizeof n, d);
    CHECK(there[d] && omp_target_memcpy(there[d], &n, sizeof n, 0, 0, d, host) == 0);
  }
#pragma omp target device(1)
  {
    pthread_t thread;
    pthread_create(&thread, NULL, crash_later, NULL);
  }
  // It is the first copy that the plugin hears it by, whose status libomptarget drops.
  int tries = 0;
  while (omp_target_memcpy(there[1], &n, sizeof n, 0, 0, 1, host) == 0) {
    CHECK(++tries < 2000);
    usleep(10000);
  }
  CHECK(omp_target_memcpy(&got, there[1], sizeof got, 0, 0, host, 1) != 0);
  CHECK(omp_target_memcpy(there[0], there[1], sizeof n, 0, 0, 0, 1) != 0);
  CHECK(omp_target_alloc(64, 1) == NULL);
  for (int round = 0; round < 100; ++round) {
    int sum = round;
#pragma omp target map(tofrom : sum) device(0)
    sum += 5;
    CHECK(sum == round + 5);
  }
  CHECK(omp_target_memcpy(&got, there[0], sizeof got, 0, 0, host, 0) == 0 && got == 7);
  return 0;
}
