// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks exchange data by MPI while their deferred regions run: MPI is used by the program
// and by libomp's helper threads at the same time.
//
// REQUIRES: openmpi
// RUN: %mpicc %s -o %t
// RUN: env OMPTARGET_MPI_DEVICES=2 %run --ranks hh %t

#include "offload.h"
#include <mpi.h>

enum { ROUNDS = 50, N = 5000 };

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  need_devices(2);
  static int here[2][N], there[N];
  for (int round = 0; round < ROUNDS; ++round) {
    for (int d = 0; d < 2; ++d) {
      int *a = here[d];
#pragma omp target map(from : a[:N]) device(d) nowait
      for (int i = 0; i < N; ++i)
        a[i] = round * 10 + i + d;
    }
    int mine = rank * 1000 + round, other = -1;
    for (int i = 0; i < 20; ++i) {
      MPI_Sendrecv(&mine, 1, MPI_INT, 1 - rank, 0, &other, 1, MPI_INT, 1 - rank,
                   0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      CHECK(other == (1 - rank) * 1000 + round);
    }
#pragma omp taskwait
    MPI_Sendrecv(here[1], N, MPI_INT, 1 - rank, 1, there, N, MPI_INT, 1 - rank, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; ++i)
      CHECK(here[0][i] == round * 10 + i && there[i] == round * 10 + i + 1);
  }
  MPI_Finalize();
  return 0;
}
