// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that uses MPI itself keeps its MPI: with the plugin on the path and
// no device, the stock plugin serves its regions; so where only a library of
// the program's links MPI.
//
// REQUIRES: host-plugin
// RUN: %mpicc %s -o %t
// RUN: %run --ranks hh %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err --allow-empty
// RUN: %if plugin %{ %line warning %t.err "no MPI devices: the (program uses MPI itself|job runs one program only)" %}
// RUN: %run --ranks hhhh %t
// RUN: %mpicc -shared -fPIC -DLIBRARY %s -o %t.so
// RUN: %clang -DPROGRAM %s -o %t %t.so
// RUN: %run --ranks hh %t
// REQUIRES: mpicc
//
// Devices in its own job, which the launcher counts first: it says that it does not use them. (MPI waits for both, and
// Open MPI 5's launcher crashes then.)
// RUN: %if openmpi4 %{ env -u OMP_TARGET_OFFLOAD LD_LIBRARY_PATH=%slot %bare --rc fail --timeout 60 %mpirun --oversubscribe -np 1 env OMPTARGET_MPI_START_TIMEOUT=2 %device : -np 1 %t > %t.out 2> %t.err %}
// RUN: %if openmpi4 %{ %line warning %t.err "no MPI devices: the program uses MPI itself" %}
//
// CHECK-NOT: error
//
// Several processes of a program that does not use MPI can't spawn devices.
// RUN: %clang -DALONE %s -o %t
// RUN: %if plugin %{ env OMPTARGET_MPI_DEVICES=1 %run --ranks hh %t 2> %t.err %}
// RUN: %if plugin %{ %line warning %t.err "no MPI devices" "OMPTARGET_MPI_DEVICES" %}

#include <stdio.h>
#include <unistd.h>

#ifdef ALONE
int add_over_ranks(int mine) { return mine == 21; }
#elif !defined PROGRAM
#include <mpi.h>

int add_over_ranks(int mine) {
  int size, sum = 0, before = 0;
  MPI_Initialized(&before);
  if (before)
    return -1;
  MPI_Init(NULL, NULL);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return size > 1 && sum == size * mine;
}
#else
int add_over_ranks(int mine);
#endif

#ifndef LIBRARY
int main(void) {
  int there = 0, x = 20;
#pragma omp target map(from : there) map(tofrom : x)
  {
    there = getpid();
    x += 1;
  }
  if (there != getpid() || x != 21) {
    fprintf(stderr, "the region ran elsewhere\n");
    return 1;
  }
  return add_over_ranks(x) == 1 ? 0 : 2;
}
#endif
