// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region in which libomp gives up, because it gets no threads: its own message and one line of
// the device's say so, the job ends, and nothing is left. So with a stack that no thread can have,
// and with fewer threads than the region asks for.
//
// Worker processes can't have accelerators.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: env OMP_STACKSIZE=16T %fails-clean %t 4 2> %t.err
// RUN: %tells "SIGABRT .abort was called"
// RUN: FileCheck %s < %t.err
// RUN: env OMP_STACKSIZE=16T OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 --rc fail --timeout 40 --no-files %t 4 2> %t.err
// RUN: %line error %t.err "kernel main, line [0-9]+ failed on device 1 .worker 1 of rank 1 on host %hostname, pid [0-9]+.: signal SIGABRT .abort was called"
// RUN: FileCheck %s < %t.err
// RUN: %if cgroup %{ %cgroup pids 200 %fails-clean %t 300 2> %t.err %}
// RUN: %if cgroup %{ %tells "SIGABRT .abort was called" %}
// RUN: %if cgroup %{ FileCheck %s < %t.err %}
// RUN: %if cgroup %{ env OMPTARGET_MPI_DEVICES_PER_RANK=2 %cgroup pids 200 %run1 --rc fail --timeout 40 --no-files %t 300 2> %t.err %}
// RUN: %if cgroup %{ %line error %t.err "failed on device 1 .worker 1 of rank 1 on host %hostname, pid [0-9]+.: signal SIGABRT .abort was called" %}
// RUN: %if cgroup %{ FileCheck %s < %t.err %}
//
// CHECK: OMP: Error #34: System unable to allocate necessary resources for OMP thread
// CHECK: omptarget-mpi: error: kernel main
// CHECK-NOT: OMP: Error

#include "offload.h"

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int wanted = atoi(argv[1]), threads = 0;
  need_devices(2);
#pragma omp target device(1) map(tofrom : threads) firstprivate(wanted)
  {
#pragma omp parallel num_threads(wanted) reduction(+ : threads)
    threads++;
  }
  printf("%d threads\n", threads);
  return 0;
}
