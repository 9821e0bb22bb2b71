// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel that touches an address of the host's ends the program: at once, with
// one error line that names kernel, device, rank, host, signal and address, and
// never with a result.
//
// RUN: %clang %s -o %t
// RUN: %run2 --rc fail %t > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 1" "rank 2" %hostname "SIGSEGV|signal 11" 0x123456789000
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: begin
// CHECK-NOT: after

#include "offload.h"
#include <sys/mman.h>

int main(void) {
  need_devices(2);
  int *p = mmap((void *)0x123456789000, 4096, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(p == (void *)0x123456789000);
  *p = 1;
  puts("begin");
  fflush(stdout);
#pragma omp target is_device_ptr(p) device(1)
  *p = 2;
  printf("after: %d\n", *p);
  return 0;
}
