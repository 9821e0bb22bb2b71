// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel that takes longer than it may ends as one that crashed; one that takes less does
// not, however many there are.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_KERNEL_TIMEOUT=3 %fails-clean %t busy 2> %t.err
// RUN: %tells "not ended within 3s, which OMPTARGET_MPI_KERNEL_TIMEOUT allows"
// RUN: env OMPTARGET_MPI_KERNEL_TIMEOUT=3 %fails %t asleep 2> %t.err
// RUN: %tells "not ended within 3s, which OMPTARGET_MPI_KERNEL_TIMEOUT allows"
// RUN: env OMPTARGET_MPI_KERNEL_TIMEOUT=30 %run2 %t short
// RUN: env OMPTARGET_MPI_KERNEL_TIMEOUT=0 %run2 %t short
// RUN: env OMPTARGET_MPI_KERNEL_TIMEOUT=soon %run2 --rc fail %t short 2> %t.err
// RUN: %line some-error %t.err "OMPTARGET_MPI_KERNEL_TIMEOUT=soon is neither 0 nor a number of seconds"

#include "offload.h"

int main(int argc, char **argv) {
  need_devices(2);
  char how = argv[argc - 1][0];
  for (int i = 0; i < 20; ++i) {
#pragma omp target device(i % 2)
    usleep(10000);
  }
  if (how == 's')
    return 0;
#pragma omp target firstprivate(how) device(1)
  while (*(volatile char *)&how)
    if (how == 'a')
      sleep(1);
  puts("after");
  return 0;
}
