// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel that takes more memory than its cgroup has: the system's OOM killer ends the device,
// which is told, with the kernel.
//
// REQUIRES: cgroup
// RUN: %clang %s -o %t
// RUN: %cgroup memory 600 %fails %t 2> %t.err
// RUN: %takes "ended by signal SIGKILL .the system.s OOM killer ended a process of its cgroup.*, while kernel main, line [0-9]+ ran$"

#include "offload.h"

int main(void) {
  need_devices(2);
#pragma omp target device(1)
  for (;;) {
    volatile char *block = (volatile char *)malloc(16 << 20);
    for (int i = 0; i < 16 << 20; i += 4096)
      block[i] = 1;
  }
  puts("after");
  return 0;
}
