// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A line that a region prints is out while the region still runs, without any
// flush: the region then waits for a file that the test makes when it has seen
// the line come through a pipe.
//
// RUN: %clang %s -o %t
// RUN: %answer "are you there?" %t.file %run1 %t %t.file | FileCheck %s
//
// CHECK:      are you there?
// CHECK-NEXT: answered
// CHECK-NEXT: end

#include "offload.h"

int main(int argc, char **argv) {
  need_devices(1);
  if (argc != 2)
    return 2;
  char path[4096];
  int answered = 0;
  snprintf(path, sizeof path, "%s", argv[1]);
#pragma omp target map(to : path) map(tofrom : answered)
  {
    printf("are you there?\n");
    for (int i = 0; i < 600 && !answered; ++i) {
      answered = access(path, F_OK) == 0;
      usleep(100000);
    }
    printf(answered ? "answered\n" : "no answer\n");
  }
  puts("end");
  return answered ? 0 : 1;
}
