// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A worker that hangs while it does again what another one has done is noticed like any
// other: its rank does not answer for it.
//
// RUN: rm -f %t.again
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_HEARTBEAT=1 %run1 --no-files --rc fail --timeout 60 %t %t.again 2> %t.err
// RUN: %line some-error %t.err "device 0" "has not answered for"

#include "offload.h"
#include <fcntl.h>
#include <signal.h>

int main(int argc, char **argv) {
  char again[4096] = "";
  CHECK(argc == 2 && strlen(argv[1]) < sizeof again);
  strcpy(again, argv[1]);
  int n = 0;
#pragma omp target map(tofrom : n) map(to : again)
  {
    if (access(again, F_OK) == 0)
      raise(SIGSTOP);
    ++n;
  }
  CHECK(n == 1);
#pragma omp target map(tofrom : n) map(to : again)
  {
    close(open(again, O_CREAT | O_WRONLY, 0600));
    kill(getpid(), SIGKILL);
    ++n;
  }
  return 0;
}
