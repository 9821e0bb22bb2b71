// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A child process can't use its parent's devices, is told so, and leaves them alone.
// (It ends by _exit: libomp 16 itself never returns from an exit in a child.)
//
// RUN: %clang %s -o %t
// RUN: %run2 --timeout 40 %t 2> %t.err
// RUN: %line some-error %t.err data_submit child

#include "offload.h"
#include <sys/wait.h>

int main(void) {
  need_devices(2);
  int host = omp_get_initial_device();
  void *there = omp_target_alloc(sizeof(int), 0);
  for (int i = 0; i < 3; ++i) {
    pid_t child = fork();
    if (child == 0)
      _exit(omp_target_memcpy(there, &i, sizeof i, 0, 0, 0, host) ? i : 9);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == i);
    int sum = 1;
#pragma omp target map(tofrom : sum) device(1)
    sum += 1;
    CHECK(sum == 2);
  }
  return 0;
}
