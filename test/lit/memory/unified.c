// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// `requires unified_shared_memory` is accepted with one warning; regions that
// touch no host memory work; one that does ends the program with an error line
// that says so. (From LLVM 22 on plugins are not told of `requires`: no warning.)
//
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %if !llvm22 %{ %line warning %t.err unified_shared_memory %}
// RUN: %run1 --rc fail %t touch > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV|signal 11" 0x123456789000 "host"
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: begin
// CHECK-NOT: after

#include <omp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#pragma omp requires unified_shared_memory

int main(int argc, char **argv) {
  (void)argv;
  if (omp_get_num_devices() != 1)
    return 1;
  int *p = mmap((void *)0x123456789000, 4096, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  puts("begin");
  fflush(stdout);
  // A region that runs elsewhere than here, known by what it prints.
  int here = getpid();
#pragma omp target firstprivate(here)
  {
    if (here == getpid())
      printf("not on a device\n");
  }
  if (argc > 1) {
#pragma omp target map(tofrom : p[0 : 10])
    p[0] = 2;
    printf("after: %d\n", p[0]);
  }
  return 0;
}
