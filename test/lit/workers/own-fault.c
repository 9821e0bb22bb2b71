// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a spare can't mend is told as the region's own fault: a region that crashes again
// at the same point, one whose result is another one each time, and a loss when all
// spares are used up. Never a wrong number, never a loop.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_SPARES=5 %run1 --rc fail --timeout 60 %t always 2> %t.err
// RUN: %line error %t.err main "device 0" "rank 1" SIGSEGV "a spare did the same again"
// RUN: env OMPTARGET_MPI_SPARES=5 %run1 --rc fail --timeout 60 %t differs 2> %t.err
// RUN: %line error %t.err "device 0" "not give the same result" "smaller OMPTARGET_MPI_JOURNAL"
// RUN: env OMPTARGET_MPI_SPARES=5 OMPTARGET_MPI_JOURNAL=0 %run1 --timeout 60 %t differs 2> %t.err
// RUN: %line warning %t.err "4 spares are left"
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_JOURNAL=0 %run1 --rc fail --timeout 60 %t twice 2> %t.err
// RUN: %line some-error %t.err "device 0"
//
// Without spares other devices of the rank go on.
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 --rc fail --timeout 60 %t always 2> %t.err
// RUN: %line error %t.err main "device 0" "worker 0 of rank 1" SIGSEGV

#include "offload.h"
#include <signal.h>

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int pid = 0, after = 0;
  if (argv[1][0] == 'a') {
#pragma omp target device(0)
    *(volatile int *)8 = 1;
  }
#pragma omp target map(from : pid) device(0)
  pid = getpid();
  // It does not begin before there is a copy of what came before.
#pragma omp target device(0)
  {}
  for (int times = 0; times < (argv[1][0] == 't' ? 2 : 1); ++times) {
    // The device's process, not that of its rank: as the system does that runs out of memory.
    CHECK(!kill(pid, SIGKILL));
#pragma omp target map(from : after) device(0)
    after = getpid();
    CHECK(after != pid);
    pid = after;
#pragma omp target device(0)
    {}
  }
  return 0;
}
