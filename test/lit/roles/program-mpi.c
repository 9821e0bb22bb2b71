// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that is linked with MPI need not use it, and one that uses it need not be linked with it. Neither can be
// seen from its file: the user says so, and what does not fit is reported at once.
//
// REQUIRES: mpicc
// RUN: %mpicc %s -o %t
// RUN: %clang -DWITHOUT_MPI %s -o %t.plain
//
// It is linked with MPI and does not call it in this run.
// RUN: %bare --rc 3 %launch -n 2 --program-mpi no %t
// RUN: env OMPTARGET_MPI_PROGRAM_MPI=no %run --ranks hdd --rc 3 %t
// It may end MPI if it finds it running, and with that its devices.
// RUN: %if openmpi %{ %bare --rc 3 %launch -n 2 --program-mpi no %t finalize %}
// RUN: %if openmpi %{ env OMPTARGET_MPI_PROGRAM_MPI=no OMPTARGET_MPI_DEVICES=2 %run --no-mpirun --rc %if openmpi5 %{any%} %else %{3%} %t %}
// RUN: %bare --rc fail --timeout 40 %launch -n 2 %t 2> %t.err
// RUN: %line error %t.err "comes before its MPI_Init" "llvm-offload-mpirun --program-mpi no; by hand OMPTARGET_MPI_PROGRAM_MPI=no"
// RUN: %run --ranks hdd --rc fail --timeout 40 %t 2> %t.err
// RUN: %line error %t.err "it is linked with MPI" "--program-mpi yes" "--program-mpi no"
//
// It calls MPI_Init, but the user says that it does not.
// RUN: %bare --rc fail --timeout 40 %launch -n 2 --program-mpi no %t init
// RUN: %bare --rc fail --timeout 40 %launch -n 2 --program-mpi no %t init-thread
// RUN: %if mpich %{ %known abort-text sh -c '%bare --rc fail --timeout 40 %launch -n 2 --program-mpi no %t init 2> %t.err && { [ -s %t.err ] || { echo "nothing was printed"; exit 1; }; } && grep -q "Cannot call MPI_INIT or MPI_INIT_THREAD more than once" %t.err' %}
//
// The user says that it calls MPI_Init, but it does not, or too late.
// RUN: env OMPTARGET_MPI_PROGRAM_MPI=yes %bare --rc fail --timeout 40 %launch -n 2 %t.plain 2> %t.err
// RUN: %line error %t.err "comes before its MPI_Init" "OMPTARGET_MPI_PROGRAM_MPI=yes" "--program-mpi no"
// RUN: env OMPTARGET_MPI_PROGRAM_MPI=yes %run --ranks hdd --rc fail --timeout 40 %t.plain 2> %t.err
// RUN: %line error %t.err "OMPTARGET_MPI_PROGRAM_MPI=yes" "are ranks of its MPI_COMM_WORLD"

#include "offload.h"
#ifndef WITHOUT_MPI
#include <mpi.h>
#endif

int main(int argc, char **argv) {
  int there = 0;
#pragma omp target map(from : there)
  there = getpid();
  CHECK(there != getpid());
#ifndef WITHOUT_MPI
  const char *what = argc > 1 ? argv[1] : "";
  int level, running;
  if (!strcmp(what, "init"))
    MPI_Init(&argc, &argv);
  if (!strcmp(what, "init-thread"))
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Initialized(&running);
  if (!strcmp(what, "finalize") && running)
    MPI_Finalize();
#endif
  (void)argc, (void)argv;
  return 3;
}
