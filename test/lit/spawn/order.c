// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program's own MPI and its regions in the wrong order, or at the wrong thread level: one
// line that says what to do. Between MPI_Init and MPI_Finalize it works at any place, also
// when no region ran, and the program's exit status is its own. (With Open MPI 5 mpirun's: it ends the
// devices behind a program that fails, and may take the status of one of them.)
//
// REQUIRES: openmpi
// RUN: %mpicc %s -o %t
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --ranks h --rc %if openmpi5 %{fail%} %else %{3%} %t multiple
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --ranks hh --rc %if openmpi5 %{fail%} %else %{3%} %t unused
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --no-mpirun --rc %if openmpi5 %{fail%} %else %{3%} %t multiple
//
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --ranks h --rc fail %t funneled 2> %t.err
// RUN: %if openmpi4 %{ %line error %t.err "MPI_THREAD_FUNNELED" "call MPI_Init_thread\(.*MPI_THREAD_MULTIPLE" %}
// Open MPI 5 refuses what is not the level that the plugin asks of it.
// RUN: %if openmpi5 %{ grep "error occurred in MPI_Init_thread" %t.err %}
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --ranks h --rc fail %t before 2> %t.err
// RUN: %line error %t.err "comes before its MPI_Init"
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --ranks h --rc fail %t after 2> %t.err
// RUN: %line error %t.err "the program has ended MPI: no target region can run after"
// RUN: env OMPTARGET_MPI_DEVICES=1 %run --ranks h --rc fail %t only-after 2> %t.err
// RUN: %line error %t.err "the program has ended MPI: no target region can run after"

#include "offload.h"
#include <mpi.h>

static void region(void) {
  int n = 1;
#pragma omp target map(tofrom : n)
  n = 2;
  CHECK(n == 2);
}

int main(int argc, char **argv) {
  const char *what = argv[1];
  int level = MPI_THREAD_MULTIPLE;
  if (!strcmp(what, "before"))
    region();
  if (!strcmp(what, "funneled"))
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  else if (!strcmp(what, "multiple"))
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  else
    MPI_Init(&argc, &argv);
  if (strcmp(what, "unused") && strcmp(what, "only-after"))
    region();
  MPI_Finalize();
  if (!strcmp(what, "after") || !strcmp(what, "only-after"))
    region();
  return 3;
}
