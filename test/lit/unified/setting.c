// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// OMPTARGET_MPI_UNIFIED: by default only the regions of programs that require unified_shared_memory, or have allocated
// shared memory, use the program's memory. Otherwise a forgotten map ends the program, with an error that names setting
// and address.
//
// RUN: %clang %s -o %t.plain
// RUN: %clang -DREQUIRE %s -o %t.requires
//
// RUN: %run1 %t.requires
// RUN: env OMPTARGET_MPI_UNIFIED=auto %run1 %t.requires
// RUN: env OMPTARGET_MPI_UNIFIED=on %run1 %t.plain
// RUN: env OMPTARGET_MPI_UNIFIED=on %run1 %t.requires
//
// RUN: %run1 --rc fail %t.plain > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" "0x123456789000, which is an address of the host program" "map the data" "OMPTARGET_MPI_UNIFIED=on"
// RUN: FileCheck %s --input-file %t.out
// RUN: env OMPTARGET_MPI_UNIFIED=auto %run1 --rc fail %t.plain > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" "0x123456789000, which is an address of the host program" "map the data" "OMPTARGET_MPI_UNIFIED=on"
// RUN: env OMPTARGET_MPI_UNIFIED=off %run1 --rc fail %t.plain > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" "0x123456789000, which is an address of the host program" "map the data" "OMPTARGET_MPI_UNIFIED=on"
// RUN: FileCheck %s --input-file %t.out
// RUN: env OMPTARGET_MPI_UNIFIED=off %run1 --rc fail %t.requires > %t.out 2> %t.err
// RUN: %line error %t.err OMPTARGET_MPI_UNIFIED
//
// RUN: env OMPTARGET_MPI_UNIFIED=yes %run1 --rc fail %t.plain 2> %t.err
// RUN: %line some-error %t.err "OMPTARGET_MPI_UNIFIED=yes is none of 'auto', 'on', 'off'"
//
// What is mapped is so in each case.
// RUN: env OMPTARGET_MPI_UNIFIED=off %run1 %t.plain mapped
// RUN: %run1 %t.plain mapped
// RUN: env OMPTARGET_MPI_UNIFIED=on %run1 %t.plain mapped
// RUN: %run1 %t.requires mapped
// REQUIRES: plugin
//
// CHECK: begin
// CHECK-NOT: after

#ifdef REQUIRE
#include "unified.h"
#else
#include "offload.h"
#endif
#include <sys/mman.h>

int main(int argc, char **argv) {
  (void)argv;
  need_devices(1);
  int *p = mmap((void *)0x123456789000, 4096, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(p == (int *)0x123456789000);
  p[0] = 1;
  puts("begin");
  fflush(stdout);
  if (argc > 1) {
#pragma omp target map(tofrom : p[0 : 10])
    p[0] += 1;
  } else {
#pragma omp target is_device_ptr(p)
    p[0] += 1;
  }
  puts("after");
  CHECK(p[0] == 2);
  return 0;
}
