// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program started without any launcher spawns its devices when it first uses one.
//
// REQUIRES: openmpi
// RUN: %clang %s -o %t -ldl
// RUN: env OMPTARGET_MPI_DEVICES=3 %run --no-mpirun --rc 5 --devices-gone 10 %t
// RUN: env OMPTARGET_MPI_DEVICES=3 %run --ranks h --rc 5 %t
// A program that is killed leaves none behind.
// RUN: env OMPTARGET_MPI_DEVICES=3 %run --no-mpirun --rc 137 --devices-gone 10 %t kill
// A program that uses none spawns none.
// RUN: env OMPTARGET_MPI_DEVICES=3 %run --no-mpirun --rc 6 %t unused
// RUN: env OMPTARGET_MPI_DEVICES=none %run --no-mpirun --rc 1 %t 2> %t.err
// RUN: %line error %t.err "OMPTARGET_MPI_DEVICES=none is not a whole number from 1 to"

#include "offload.h"
#include <dlfcn.h>
#include <signal.h>

static int mpi_runs(void) {
  int started = 0;
  // The plugin has brought it along, for itself.
  void *mpi = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
  int (*initialized)(int *) =
      mpi ? (int (*)(int *))dlsym(mpi, "MPI_Initialized") : NULL;
  if (initialized)
    initialized(&started);
  return started;
}

int main(int argc, char **argv) {
  CHECK(omp_get_num_devices() == 3 && !mpi_runs());
  if (argc > 1 && !strcmp(argv[1], "unused"))
    return 6;
  need_devices(3);
  if (argc > 1)
    kill(getpid(), SIGKILL);
  CHECK(mpi_runs());
  int n = 1 << 20;
  int *a = malloc(n * sizeof *a);
  for (int i = 0; i < n; ++i)
    a[i] = i;
#pragma omp target teams distribute parallel for map(tofrom : a[:n]) device(2)
  for (int i = 0; i < n; ++i)
    a[i] *= 2;
  for (int i = 0; i < n; ++i)
    CHECK(a[i] == 2 * i);
  return 5;
}
