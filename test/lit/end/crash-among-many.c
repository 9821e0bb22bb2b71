// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One of 40 regions that run at the same time crashes: more than a device has
// threads for kernels. The crash is told and the program ends; nothing hangs.
//
// RUN: %clang %s -o %t
// RUN: %run1 --rc fail --timeout 40 %t 2> %t.err
// RUN: %line some-error %t.err kernel "device 0" "rank 1" SIGSEGV

#include "offload.h"

int main(void) {
  need_devices(1);
#pragma omp parallel num_threads(40)
  {
    int me = omp_get_thread_num();
#pragma omp target device(0) firstprivate(me)
    {
      if (me == 7) {
        usleep(500000);
        *(volatile int *)8 = 1;
      }
      usleep(1500000);
    }
  }
  return 0;
}
