// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An error ends the program while another thread waits for a line of standard input,
// with the stream locked: neither does the end wait for that, nor is anything lost of
// what the program has printed so far, to whatever file. Nor of its standard output if
// the stream that the thread reads is one that the program has opened.
//
// REQUIRES: mpicc
// RUN: %mpicc %s -o %t -pthread
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --no-mpirun --rc 1 --timeout 40 %t %t.file > %t.out 2> %t.err
// RUN: %line error %t.err "before its MPI_Init"
// RUN: FileCheck %s --input-file %t.out
// RUN: FileCheck %s --input-file %t.file
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --no-mpirun --rc 1 --timeout 40 %t %t.file own > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out
//
// CHECK: printed

#include "check.h"
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *read_line(void *stream) {
  getc((FILE *)stream);
  return NULL;
}

int main(int argc, char **argv) {
  // An input that nothing ever comes from.
  int ends[2];
  CHECK(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
  FILE *stream = argc > 2 ? fdopen(ends[0], "r") : stdin;
  pthread_t thread;
  CHECK(stream != NULL && pthread_create(&thread, NULL, read_line, stream) == 0);
  while (ftrylockfile(stream) == 0) {
    funlockfile(stream);
    usleep(1000);
  }
  FILE *file = fopen(argv[1], "w");
  CHECK(argc > 1 && file != NULL);
  printf("printed");
  fprintf(file, "printed");
  // A region before MPI has started can't have its devices.
#pragma omp target
  {}
  return MPI_Init(NULL, NULL);
}
