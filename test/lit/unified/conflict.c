// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two regions that run at once, or a region and the program, change one byte: the one that ends later fails, with an
// error that names kernel, device, address and values. What the other one wrote stays, and all else that this one wrote
// arrives. A byte that both give the same value is no conflict: it may be a flag.
//
// RUN: %clang %s -o %t
// RUN: %run2 --rc fail %t device > %t.out 2> %t.err
// RUN: %line error %t.err "kernel .*main.*, line" "device 0" "rank 1" %hostname "0x[0-9a-f]+ from 0x00 to 0x01, but it is 0x02 now"
// RUN: FileCheck %s --input-file %t.out
// RUN: %run2 --rc fail %t program > %t.out 2> %t.err
// RUN: %line error %t.err "kernel .*main.*, line" "device 0" "rank 1" %hostname "0x[0-9a-f]+ from 0x00 to 0x01, but it is 0x02 now"
// RUN: FileCheck %s --input-file %t.out
// RUN: %run2 %t flag > %t.out 2> %t.err
// RUN: %line none %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefix=FLAG
// RUN: %run2 %t none > %t.out 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin
//
// CHECK: begin
// CHECK-NEXT: they are 2, 7 and 2
// CHECK-NOT: after
// FLAG: begin
// FLAG-NEXT: after: 1, 7 and 1

#include "unified.h"
#include <signal.h>

static int bytes[3], *shared = bytes;

static void look(int signal) {
  (void)signal;
  printf("they are %d, %d and %d\n", bytes[0], bytes[1], bytes[2]);
  fflush(stdout);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(2);
  const char *which = argv[1];
  // In the memory of device 0: 1 once the first region has written, 2 when it may end.
  int *stage = llvm_omp_target_alloc_device(sizeof *stage, 0), now = 0;
  int host = omp_get_initial_device();
  CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
  puts("begin");
  fflush(stdout);
  signal(SIGABRT, look);
  int *p = shared;
#pragma omp target nowait device(0) is_device_ptr(stage) firstprivate(p)
  {
    p[0] = p[2] = 1;
    p[1] = 7;
    __atomic_store_n(stage, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
      usleep(1000);
  }
  while (now != 1)
    CHECK(omp_target_memcpy(&now, stage, sizeof now, 0, 0, host, 0) == 0);
  if (!strcmp(which, "device")) {
#pragma omp target device(1)
    p[0] = p[2] = 2;
  } else if (!strcmp(which, "flag")) {
#pragma omp target device(1)
    p[0] = 1;
    p[2] = 1;
  } else if (!strcmp(which, "program")) {
    p[0] = p[2] = 2;
  }
  now = 2;
  CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
#pragma omp taskwait
  printf("after: %d, %d and %d\n", p[0], p[1], p[2]);
  omp_target_free(stage, 0);
  return 0;
}
