// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An MPI program, each rank of which has a device of its own; all devices exist at once.

#include "offload.h"
#include <mpi.h>

int main(int argc, char **argv) {
  int level, x = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
#pragma omp target map(tofrom : x)
  x += 2;
  CHECK(x == 3);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
