// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With OMPTARGET_MPI_BIND=inherit the binding of Open MPI's launcher stays: one
// core for the device, one for the host.
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: env -u OMP_NUM_THREADS OMPTARGET_MPI_BIND=inherit %run1 --mpirun-arg=--bind-to --mpirun-arg=core %t
// REQUIRES: openmpi, multicore, plugin

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "offload.h"
#include <sched.h>

#pragma omp declare target
static int cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? -1 : CPU_COUNT(&set);
}
#pragma omp end declare target

int main(void) {
  need_devices(1);
  int most = 0, there = 0;
#pragma omp target map(from : most, there)
  {
    there = cores();
    most = omp_get_max_threads();
  }
  printf("host %d cores, device %d cores, %d threads\n", cores(), there, most);
  CHECK(cores() == 1 && there == 1 && most == 1);
  return 0;
}
