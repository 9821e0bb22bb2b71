// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A worker is killed, and its spare repeats a region that takes longer than the program's end waits
// for a silent device. The program has nothing more to do: its end waits for the spare, also
// where a waiting program asks no device whether it is alive. So do its statistics.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_HEARTBEAT=0 %run1 --no-files --timeout 120 %t %t.begun %t.again 2> %t.err
// RUN: %line warning %t.err "worker 0 of rank 1" "0 spares are left"
// RUN: not grep "omptarget-mpi: error" %t.err
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_HEARTBEAT=0 OMPTARGET_MPI_STATS=1 %run1 --no-files --timeout 120 %t %t.begun %t.again 2> %t.err
// RUN: %line warning %t.err "worker 0 of rank 1" "0 spares are left"
// RUN: not grep "omptarget-mpi: error" %t.err
// RUN: grep "main, line" %t.err

#include "offload.h"
#include <fcntl.h>
#include <signal.h>

enum { Seconds = 12 };

int main(int argc, char **argv) {
  char begun[400] = "", again[400] = "";
  CHECK(argc == 3);
  strncpy(begun, argv[1], sizeof begun - 1);
  strncpy(again, argv[2], sizeof again - 1);
  unlink(begun);
  unlink(again);
  // The worker's process is no result of the region: it differs in the replay.
#pragma omp target map(to : begun, again)
  {
    if (access(begun, F_OK)) {
      FILE *file = fopen(begun, "w");
      fprintf(file, "%d", getpid());
      fclose(file);
    } else {
      close(open(again, O_CREAT | O_WRONLY, 0600));
      sleep(Seconds);
    }
  }
  int worker = 0;
  FILE *file = fopen(begun, "r");
  CHECK(file && fscanf(file, "%d", &worker) == 1 && worker > 0);
  fclose(file);
  CHECK(!kill(worker, SIGKILL));
  while (access(again, F_OK))
    usleep(1000);
  return 0;
}
