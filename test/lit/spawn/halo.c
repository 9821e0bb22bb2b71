// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An MPI application: a ring of cells that is spread over the ranks, each with two devices
// of its own that compute it half each; neighbours exchange the cells between them by MPI.
// The result is that of one process. C and C++ (without MPI's own C++ bindings, which newer
// compilers refuse), 2 and 4 ranks.
//
// REQUIRES: openmpi
// RUN: %mpicc %s -o %t
// RUN: env OMPTARGET_MPI_DEVICES=2 %run --ranks hh %t 2
// RUN: env OMPTARGET_MPI_DEVICES=2 %run --ranks hhhh %t 4
// RUN: %bare %launch -r 2 -n 2 %t 2
// RUN: cp %s %t.cpp && %mpicxx -DOMPI_SKIP_MPICXX %t.cpp -o %t.cxx
// RUN: env OMPTARGET_MPI_DEVICES=2 %run --ranks hh %t.cxx 2

#include "offload.h"
#include <mpi.h>

enum { CELLS = 4096, STEPS = 40 };

/// One step on cells 1..=n of a; cells 0 and n + 1 are the neighbours'.
static void step(double *a, double *b, int n, int device) {
#pragma omp target teams distribute parallel for map(to : a[:n + 2])           \
    map(from : b[1:n]) device(device)
  for (int i = 1; i <= n; ++i)
    b[i] = (a[i - 1] + a[i + 1]) / 2;
}

static double start(int i) { return i % 7 * 1.5 + i % 11; }

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(ranks == atoi(argv[1]));
  need_devices(2);

  int n = CELLS / ranks, half = n / 2;
  double *a = (double *)malloc((n + 2) * sizeof *a);
  double *b = (double *)malloc((n + 2) * sizeof *b);
  for (int i = 0; i < n; ++i)
    a[i + 1] = start(rank * n + i);
  int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  for (int s = 0; s < STEPS; ++s) {
    MPI_Sendrecv(&a[1], 1, MPI_DOUBLE, left, 0, &a[n + 1], 1, MPI_DOUBLE, right,
                 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&a[n], 1, MPI_DOUBLE, right, 1, &a[0], 1, MPI_DOUBLE, left, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#pragma omp parallel sections num_threads(2)
    {
#pragma omp section
      step(a, b, half, 0);
#pragma omp section
      step(a + half, b + half, n - half, 1);
    }
    double *t = a;
    a = b;
    b = t;
  }

  double *all = (double *)malloc(CELLS * sizeof *all);
  MPI_Gather(a + 1, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    static double x[CELLS], y[CELLS];
    for (int i = 0; i < CELLS; ++i)
      x[i] = start(i);
    for (int s = 0; s < STEPS; ++s) {
      for (int i = 0; i < CELLS; ++i)
        y[i] = (x[(i + CELLS - 1) % CELLS] + x[(i + 1) % CELLS]) / 2;
      memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < CELLS; ++i)
      CHECK(all[i] == x[i]);
  }
  free(a);
  free(b);
  free(all);
  MPI_Finalize();
  return 0;
}
