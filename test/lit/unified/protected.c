// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region can't use memory that the program itself can't use: each access ends the program with one error that
// names kernel, device, host and address, and nothing of the region's changes arrives.
//
// RUN: %clang -D_GNU_SOURCE %s -o %t
// RUN: %run1 --rc fail %t read-only > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname 0x7d0000000000 "can.t be written"
// RUN: %run1 --rc fail %t constant > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "0x[0-9a-f]+" "can.t be written"
// RUN: %run1 --rc fail %t guard-read > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" 0x7d0000001000
// RUN: FileCheck %s --input-file %t.out
// RUN: %run1 --rc fail %t guard-write > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" 0x7d0000001000
// RUN: FileCheck %s --input-file %t.out
// RUN: %run1 --rc fail %t nowhere > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" 0x7d0000003000 "nothing is mapped"
// RUN: FileCheck %s --input-file %t.out
// RUN: %run1 --rc fail %t unmapped > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" 0x7d0000001000 "a region has unmapped it"
// RUN: FileCheck %s --input-file %t.out
// RUN: %run1 --rc fail %t null > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIGSEGV" "a null pointer"
// RUN: FileCheck %s --input-file %t.out
// RUN: %run1 --rc fail %t past-file > %t.out 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "SIG(SEGV|BUS)" 0x7d0000001000
// RUN: FileCheck %s --input-file %t.out
// RUN: %run1 %t none > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefix=ALL
// RUN: %line none %t.err
// REQUIRES: plugin
//
// libomptarget ends the program by SIGABRT, which looks at its memory.
// CHECK: begin
// CHECK-NEXT: unchanged
// ALL: begin
// ALL-NEXT: after
// ALL-NEXT: changed

#include "unified.h"
#include <signal.h>
#include <sys/mman.h>

static const int constant[4] = {1, 2, 3, 4};
static char changed;

static void look(int signal) {
  (void)signal;
  puts(changed ? "changed" : "unchanged");
  fflush(stdout);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(1);
  const char *which = argv[1];
  char *p = mmap((void *)0x7d0000000000, 3 * 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(p == (char *)0x7d0000000000);
  p[0] = p[4096] = p[8192] = 1;
  volatile char *at = p + 4096;
  int writes = 0, unmaps = !strcmp(which, "unmapped");
  if (!strcmp(which, "read-only")) {
    CHECK(mprotect(p, 4096, PROT_READ) == 0);
    at = p, writes = 1;
  } else if (!strcmp(which, "constant")) {
    at = (char *)constant, writes = 1;
  } else if (!strcmp(which, "guard-read") || !strcmp(which, "guard-write")) {
    CHECK(mprotect(p + 4096, 4096, PROT_NONE) == 0);
    writes = !strcmp(which, "guard-write");
  } else if (!strcmp(which, "nowhere")) {
    at = p + 3 * 4096;
  } else if (!strcmp(which, "null")) {
    at = NULL;
  } else if (!strcmp(which, "past-file")) {
    FILE *file = tmpfile();
    CHECK(file && ftruncate(fileno(file), 100) == 0);
    CHECK(mmap(p, 8192, PROT_READ, MAP_SHARED | MAP_FIXED, fileno(file), 0) == p);
  }
  signal(SIGABRT, look);
  puts("begin");
  fflush(stdout);
  char *mark = &changed;
#pragma omp target
  {
    *mark = 1;
    if (unmaps)
      munmap(p, *at ? 3 * 4096 : 0);
    char value = *at;
    if (writes)
      *at = value + 1;
  }
  puts("after");
  look(0);
  return 0;
}
