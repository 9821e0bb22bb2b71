// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// However mpirun binds its ranks, a region has more than one thread where the
// machine has more than one core, they really run, and the host program may use
// all cores too, also if a script has started it.
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: env -u OMP_NUM_THREADS %run1 %t %cpus
// RUN: env -u OMP_NUM_THREADS %run1 sh -c "%t %cpus && :"
// RUN: %if llvm16 %{ %if plugin %{ env -u OMP_NUM_THREADS -u OMPTARGET_MPI_BACKEND OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_JOURNAL=0 %run1 %t %cpus %} %}
// REQUIRES: multicore

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

int main(int argc, char **argv) {
  need_devices(1);
  int machine = argc > 1 ? atoi(argv[1]) : 2;
  int most = 0, used = 0, there = 0;
#pragma omp target map(tofrom : most, used, there)
  {
    there = cores();
    most = omp_get_max_threads();
#pragma omp parallel reduction(+ : used)
    used += 1;
  }
  printf("host %d cores, device %d cores, %d threads, %d used\n", cores(),
         there, most, used);
  CHECK(there > 1 && most > 1 && used > 1);
  CHECK(cores() == machine && omp_get_max_threads() == machine);
  return 0;
}
