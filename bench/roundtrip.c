// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What MPI alone costs between two ranks at MPI_THREAD_SERIALIZED, which is what the
// plugin asks for: the measure for everything else. Prints "name<TAB>seconds".
//
// Rank 0 measures; rank 1 does with each message what its tag says.

#include "sample.h"
#include <mpi.h>
#include <string.h>

enum tag { SIZE, ECHO, SEND, SHOW, STOP };
static const long most = 256 << 20;

static int size;
static unsigned *out, *in;

static void tell(enum tag tag, const void *from, int length) {
  MPI_Send(from, length, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
}

static void hear(int length) {
  MPI_Recv(in, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// There and back.
static void echo(void) {
  tell(ECHO, out, size);
  hear(size);
}

// There, and an empty answer.
static void send_only(void) {
  tell(SEND, out, size);
  hear(0);
}

static void serve(void) {
  int *held = memory(most);
  for (size = sizeof size;;) {
    MPI_Status status;
    MPI_Recv(held, size, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    if (status.MPI_TAG == STOP)
      break;
    if (status.MPI_TAG == SIZE)
      size = *held;
    else
      MPI_Send(held, status.MPI_TAG == SEND ? 0 : size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
  free(held);
}

static void prepare(long bytes) {
  size = (int)bytes;
  tell(SIZE, &size, sizeof size);
  fill(out, size, (unsigned)size);
  memset(in, 0, size);
}

static void ask(void) {
  char name[64];
  out = memory(most);
  in = memory(most);
  for (long bytes = 64; bytes <= 1 << 20; bytes *= 4) {
    prepare(bytes);
    snprintf(name, sizeof name, "echo %ld", bytes);
    measure(name, echo);
    check(!memcmp(in, out, size), "echo");
  }
  for (long bytes = 4096; bytes <= most; bytes *= 16) {
    prepare(bytes);
    snprintf(name, sizeof name, "send %ld", bytes);
    measure(name, send_only);
    tell(SHOW, NULL, 0);
    hear(size);
    check(!memcmp(in, out, size), "what was sent");
  }
  tell(STOP, NULL, 0);
  free(out);
  free(in);
}

int main(int argc, char **argv) {
  int provided, rank, ranks;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  check(provided >= MPI_THREAD_SERIALIZED, "this MPI has no MPI_THREAD_SERIALIZED");
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  check(ranks == 2, "not two ranks");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    ask();
  else
    serve();
  MPI_Finalize();
  return 0;
}
