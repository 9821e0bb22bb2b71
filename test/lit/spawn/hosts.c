// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The devices of an MPI application's ranks are on the ranks' own hosts, or where they are
// told to be, each rank's own; variables that mean something to them come along.
// (Open MPI 5.0.7 spawns them all on the host of the first rank: the plugin says so.)
//
// REQUIRES: openmpi4, hosts
// RUN: %mpicc %s -o %t
// RUN: %bare %hosts alpha,beta env OMP_NUM_THREADS=3 %launch -r 2 -n 1 -a=--host -a=alpha,beta -a=--map-by -a=node %t > %t.out
// RUN: FileCheck %s --input-file %t.out
// CHECK-DAG: rank on alpha, device on alpha, 3 threads
// CHECK-DAG: rank on beta, device on beta, 3 threads
//
// RUN: %bare %hosts alpha,beta,gamma env OMP_NUM_THREADS=3 %launch -r 2 -n 1 --hosts beta,gamma %t > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=TOLD
// TOLD-DAG: rank on alpha, device on beta, 3 threads
// TOLD-DAG: rank on alpha, device on gamma, 3 threads

#include "offload.h"
#include <mpi.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  char here[64], there[64] = "";
  int threads = 0;
  gethostname(here, sizeof here);
  need_devices(1);
#pragma omp target map(from : there, threads)
  {
    gethostname(there, sizeof there);
    threads = omp_get_max_threads();
  }
  char line[200];
  int len = snprintf(line, sizeof line, "rank on %s, device on %s, %d threads\n",
                     here, there, threads);
  // At once: the lines of two ranks must not mix.
  CHECK(write(1, line, len) == len);
  MPI_Finalize();
  return 0;
}
