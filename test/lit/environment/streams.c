// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Standard streams that are closed: nothing of MPI's gets their numbers, so that what
// regions print goes nowhere, and not into a connection.
//
// RUN: %clang %s -o %t
// RUN: rm -f %t.result && %run --ranks hd sh %S/Inputs/closed.sh %t %t.result
// RUN: FileCheck %s --input-file %t.result
// RUN: rm -f %t.result && %bare sh %S/Inputs/closed.sh %launch -n 1 %t %t.result
// RUN: FileCheck %s --input-file %t.result
// RUN: %if openmpi %{ rm -f %t.result && env OMPTARGET_MPI_DEVICES=1 %run --no-mpirun sh %S/Inputs/closed.sh %t %t.result %}
// RUN: FileCheck %s --input-file %t.result
//
// CHECK: 200 regions

#include "offload.h"

int main(int argc, char **argv) {
  int x = 0;
  for (int i = 0; i < 200; ++i) {
#pragma omp target map(tofrom : x)
    {
      x++;
      printf("out %d\n", i);
      fflush(NULL);
      dprintf(2, "err %d\n", i);
    }
  }
  for (int fd = 0; fd <= 2; ++fd) {
    char link[64], to[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CHECK(readlink(link, to, sizeof to - 1) > 0);
    // A launcher's processes have its pipes or a terminal there.
    if (strncmp(to, "/dev/", 5) != 0 && strncmp(to, "pipe:", 5) != 0)
      exit(10 + fd);
  }
  FILE *result = fopen(argv[argc - 1], "w");
  fprintf(result, "%d regions\n", x);
  return x != 200;
}
