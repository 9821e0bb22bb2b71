// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a region printed before it crashed is not lost, and the crash ends the
// program with an error line that names kernel, device, rank, host and signal. (Open MPI 5's
// mpirun may put a piece of stderr before a line of stdout.)
//
// RUN: %clang %s -o %t
// RUN: %run2 --rc fail %t abort > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out
// RUN: FileCheck %s --input-file %t.err --check-prefix=ERR
// RUN: %line error %t.err "kernel main, line" "device 1" "rank 2" %hostname "SIGABRT|signal 6"
// RUN: %run2 --rc fail %t fault > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out
// RUN: FileCheck %s --input-file %t.err --check-prefix=ERR
// RUN: %line error %t.err "kernel main, line" "device 1" "rank 2" %hostname "SIGSEGV|signal 11"
// RUN: %run2 --rc fail %t raise > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out
// RUN: %line error %t.err "kernel main, line" "device 1" "rank 2" %hostname "SIGFPE|signal 8"
//
// CHECK:      {{^}}host before
// CHECK-NEXT: device before{{$}}
// CHECK-NOT:  after
// ERR: {{^}}device before, on stderr

#include "offload.h"
#include <signal.h>

#pragma omp declare target
/// The device's own stderr: named in a region, it would be the host's.
static void to_stderr(const char *line) { fprintf(stderr, "%s\n", line); }
#pragma omp end declare target

int main(int argc, char **argv) {
  need_devices(2);
  char how = argc > 1 ? argv[1][0] : 'a';
  puts("host before");
#pragma omp target firstprivate(how) device(1)
  {
    puts("device before");
    to_stderr("device before, on stderr");
    if (how == 'a')
      abort();
    else if (how == 'f')
      *(volatile int *)(uintptr_t)(how - 'f') = 1;
    else
      raise(SIGFPE);
    puts("device after");
  }
  puts("after");
  return 0;
}
