// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A construct is one message, one launch and one synchronization of the accelerator, however many variables it maps.
//
// REQUIRES: llvm16
// RUN: %clang -I%standin-include %s -o %t
// RUN: %make-standin
// RUN: rm -f %t.counts
// RUN: %standin env STANDIN_COUNTS=%t.counts LIBOMPTARGET_DEBUG=1 %run1 %t %t.counts 2> %t.err
// RUN: %messages %t.err | FileCheck %s
//
// CHECK: region: 1 out ({{[0-9]+}} bytes), 1 back ({{[0-9]+}} bytes), 0 bulk

#include "offload.h"
#include "standin.h"
#include <fcntl.h>
#include <sys/mman.h>

static int region(int *a, int *b, int s) {
#pragma omp target map(tofrom : a[0 : 100]) map(to : b[0 : 10]) map(from : s)
  {
    a[99] += b[9];
    s = a[0];
  }
  return s;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int a[100] = {5}, b[10] = {0};
  b[9] = 2;
  CHECK(region(a, b, 0) == 5 && a[99] == 2);
  volatile uint64_t *counts =
      mmap(NULL, COUNTS * sizeof(uint64_t), PROT_READ, MAP_SHARED, open(argv[1], O_RDONLY), 0);
  CHECK(counts != MAP_FAILED);
  uint64_t launches = counts[LAUNCH], synchronized = counts[SYNCHRONIZE];
  fprintf(stderr, "begin region\n");
  CHECK(region(a, b, 0) == 5 && a[99] == 4);
  fprintf(stderr, "end\n");
  CHECK(counts[LAUNCH] == launches + 1);
  CHECK(counts[SYNCHRONIZE] == synchronized + 1);
  return 0;
}
