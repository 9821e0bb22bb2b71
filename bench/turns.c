// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What MPI alone costs among as many ranks as scale.c has devices and itself. Prints
// "name<TAB>seconds".
//
//   turns turns       64 bytes there and back between the last rank and each other in turn
//   turns broadcast   64 MiB from the last rank to all others, first use and all
//   turns send        the same to each by a send of its own, one after the other
//   turns first       a barrier: for what it takes from start to end

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

enum { LARGE = 64 << 20 };

// Ends when all have it.
static double broadcast(int rank) {
  char *large = memory(LARGE);
  if (rank == others)
    memset(large, 1, LARGE);
  double begin = now();
  MPI_Bcast(large, LARGE, MPI_BYTE, others, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  double took = now() - begin;
  check(large[LARGE - 1] == 1, "what was broadcast");
  free(large);
  return took;
}

static double send_to_each(int rank) {
  char *large = memory(LARGE);
  if (rank == others)
    memset(large, 1, LARGE);
  double begin = now();
  for (int i = 0; rank == others && i < others; ++i)
    MPI_Send(large, LARGE, MPI_BYTE, i, 0, MPI_COMM_WORLD);
  if (rank != others)
    MPI_Recv(large, LARGE, MPI_BYTE, others, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  double took = now() - begin;
  check(large[LARGE - 1] == 1, "what was sent");
  free(large);
  return took;
}

int main(int argc, char **argv) {
  int provided, rank;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &others);
  --others;
  MPI_Barrier(MPI_COMM_WORLD);
  const char *what = argc == 2 ? argv[1] : "";
  if (!strcmp(what, "broadcast") || !strcmp(what, "send")) {
    double took = *what == 'b' ? broadcast(rank) : send_to_each(rank);
    if (rank == others)
      printf("%s\t%.9f\n", what, took);
  } else if (!strcmp(what, "turns")) {
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
