// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the user says of threads holds in regions as in those of libomptarget's own host plugin: their number, binding and
// places, and how they wait. It still does when long kernels have run, after which a device may move its threads.
//
// RUN: %clang %s -o %t
// RUN: env OMP_NUM_THREADS=3 %run --stock %t > %t.stock
// RUN: env OMPTARGET_MPI_BIND=node OMP_NUM_THREADS=3 %run1 %t > %t.mpi && diff %t.stock %t.mpi
// RUN: env OMP_NUM_THREADS=2 OMP_PROC_BIND=true OMP_PLACES=cores %run --stock %t > %t.stock
// RUN: env OMPTARGET_MPI_BIND=node OMP_NUM_THREADS=2 OMP_PROC_BIND=true OMP_PLACES=cores %run1 %t > %t.mpi && diff %t.stock %t.mpi
// RUN: env OMP_NUM_THREADS=2 OMP_PROC_BIND=close OMP_PLACES="{0},{1}" %run --stock %t > %t.stock
// RUN: env OMPTARGET_MPI_BIND=node OMP_NUM_THREADS=2 OMP_PROC_BIND=close OMP_PLACES="{0},{1}" %run1 %t > %t.mpi && diff %t.stock %t.mpi
// RUN: env OMP_NUM_THREADS=2 OMP_PROC_BIND=spread OMP_PLACES=threads %run --stock %t > %t.stock
// RUN: env OMPTARGET_MPI_BIND=node OMP_NUM_THREADS=2 OMP_PROC_BIND=spread OMP_PLACES=threads %run1 %t > %t.mpi && diff %t.stock %t.mpi
// RUN: env OMP_NUM_THREADS=2 KMP_BLOCKTIME=0 OMP_WAIT_POLICY=passive %run --stock %t > %t.stock
// RUN: env OMPTARGET_MPI_BIND=node OMP_NUM_THREADS=2 KMP_BLOCKTIME=0 OMP_WAIT_POLICY=passive %run1 %t > %t.mpi && diff %t.stock %t.mpi
// RUN: env OMP_NUM_THREADS=2 KMP_BLOCKTIME=infinite OMP_WAIT_POLICY=active %run --stock %t > %t.stock
// RUN: env OMPTARGET_MPI_BIND=node OMP_NUM_THREADS=2 KMP_BLOCKTIME=infinite OMP_WAIT_POLICY=active %run1 %t > %t.mpi && diff %t.stock %t.mpi
// (Devices take all cores, as the stock plugin does.)
// REQUIRES: plugin, multicore, host-plugin, llvm16
// UNSUPPORTED: accelerators, no-system

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <omp.h>
#include <sched.h>

enum { MOST = 64 };

struct thread {
  int place, cores;
  unsigned long mask;
};

#pragma omp declare target
static void note(struct thread *thread) {
  cpu_set_t set;
  thread->place = omp_get_place_num();
  thread->cores = sched_getaffinity(0, sizeof set, &set) ? -1 : CPU_COUNT(&set);
  thread->mask = 0;
  for (int i = 0; i < 64; ++i)
    thread->mask |= (unsigned long)(CPU_ISSET(i, &set) != 0) << i;
}
#pragma omp end declare target

int main(void) {
  struct thread threads[MOST];
  int count = 0, bind = 0, places = 0, blocktime = 0;
  // More than 10 us each.
  for (int i = 0; i < 100; ++i) {
    double sum = 0;
#pragma omp target map(tofrom : sum)
#pragma omp parallel for reduction(+ : sum)
    for (int k = 1; k < 100000; ++k)
      sum += 1.0 / k;
    CHECK(sum > 12);
  }
#pragma omp target map(from : threads, count, bind, places, blocktime)
  {
    bind = omp_get_proc_bind();
    places = omp_get_num_places();
    blocktime = kmp_get_blocktime();
#pragma omp parallel
    {
      int n = omp_get_thread_num();
#pragma omp master
      count = omp_get_num_threads();
      if (n < MOST)
        note(&threads[n]);
    }
  }
  printf("bind %d, %d places, block time %d, %d threads\n", bind, places, blocktime, count);
  for (int n = 0; n < count && n < MOST; ++n)
    printf("thread %d: place %d, %d cores, %lx\n", n, threads[n].place, threads[n].cores, threads[n].mask);
  return 0;
}
