// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region that crashes after it has written to the program's memory sends nothing home, and the error is the crash's.
//
// RUN: %clang %s -o %t
// RUN: %run1 --rc fail %t > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGFPE"
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: begin
// CHECK-NEXT: 5 and 7
// CHECK-NOT: after

#include "unified.h"
#include <signal.h>

static int a[100000];

static void look(int signal) {
  (void)signal;
  printf("%d and %d\n", a[0], a[99999]);
  fflush(stdout);
}

int main(int argc, char **argv) {
  (void)argv;
  need_devices(1);
  int *p = a, zero = argc - 1;
#pragma omp target
  p[0] = 5;
  CHECK(a[0] == 5);
  a[99999] = 7;
  signal(SIGABRT, look);
  puts("begin");
  fflush(stdout);
#pragma omp target
  {
    for (int i = 0; i < 100000; ++i)
      p[i] += 100;
    p[0] /= zero;
  }
  puts("after");
  return 0;
}
