// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What MPI alone costs among as many ranks as scale.c has devices and itself. Prints
// "name<TAB>seconds".
//
//   turns turns   64 bytes there and back between the last rank and each other in turn
//   turns first   a barrier: for what it takes from start to end

#include "sample.h"
#include <mpi.h>
#include <string.h>

static int others, turn;
static char bytes[64];

static void echo_in_turn(void) {
  MPI_Send(bytes, sizeof bytes, MPI_BYTE, turn, 0, MPI_COMM_WORLD);
  MPI_Recv(bytes, sizeof bytes, MPI_BYTE, turn, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  turn = (turn + 1) % others;
}

static void serve(void) {
  for (;;) {
    MPI_Status status;
    MPI_Recv(bytes, sizeof bytes, MPI_BYTE, others, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    if (status.MPI_TAG)
      return;
    MPI_Send(bytes, sizeof bytes, MPI_BYTE, others, 0, MPI_COMM_WORLD);
  }
}

int main(int argc, char **argv) {
  int provided, rank;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &others);
  --others;
  MPI_Barrier(MPI_COMM_WORLD);
  if (argc == 2 && !strcmp(argv[1], "turns")) {
    if (rank < others) {
      serve();
    } else {
      measure("echo in turn", echo_in_turn);
      for (int i = 0; i < others; ++i)
        MPI_Send(bytes, 0, MPI_BYTE, i, 1, MPI_COMM_WORLD);
    }
  }
  MPI_Finalize();
  return 0;
}
