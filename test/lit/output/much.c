// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// 1 MiB of output from one region arrives whole and in order, on stdout and on
// stderr; so does one line of 300 kB. (The mpirun of Open MPI 5 writes the end of any program's
// stdout to stderr if it has much to read when the program goes over to stderr.)
//
// UNSUPPORTED: openmpi5
// RUN: %clang %s -o %t
// RUN: %t expected > %t.expected
// RUN: %run1 %t > %t.out 2> %t.err
// RUN: cmp %t.expected %t.out
// RUN: cmp %t.expected %t.err
// RUN: %run1 %t 2> %t.err | cmp %t.expected -

#include "offload.h"

#pragma omp declare target
static void write_all(int fd) {
  FILE *file = fd == 1 ? stdout : stderr;
  for (int i = 0; i < 32768; ++i)
    fprintf(file, "line %6d of a long report ....\n", i); // 32 bytes and more
  for (int i = 0; i < 30000; ++i)
    fputs("0123456789", file);
  fputc('\n', file);
}
#pragma omp end declare target

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1) {
    write_all(1);
    return 0;
  }
  need_devices(1);
#pragma omp target
  {
    write_all(1);
    write_all(2);
  }
  return 0;
}
