// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A job whose device is stopped ends, with its own launcher, and nothing else does: not a script
// above it that is called like a launcher, not an outer job in which it runs. That has nothing
// to do with the release of LLVM.
//
// REQUIRES: llvm16
//
// RUN: %clang %s -o %t
// RUN: %if openmpi %{ env OMPTARGET_MPI_HEARTBEAT=1 OMPTARGET_MPI_DEVICES=1 %run --no-mpirun --devices-gone 30 %S/Inputs/mpirun_all.sh %t > %t.out 2> %t.err %}
// RUN: %if openmpi %{ FileCheck %s --input-file %t.out --check-prefix=SCRIPT %}
// RUN: %if openmpi %{ %line error %t.err "has not answered" %}
// SCRIPT: begin
// SCRIPT-NEXT: {{^}}status {{[1-9]}}
// SCRIPT-NEXT: the script has not been ended
//
// RUN: %if openmpi %{ env OMPTARGET_MPI_HEARTBEAT=1 OMPTARGET_MPI_DEVICES=1 %run --ranks h --devices-gone 30 sh %S/Inputs/pilot.sh %t > %t.out 2> %t.err %}
// RUN: %if openmpi %{ FileCheck %s --input-file %t.out --check-prefix=PILOT %}
// RUN: %if openmpi %{ %line error %t.err "has not answered" %}
//
// RUN: env OMPTARGET_MPI_HEARTBEAT=1 %run --ranks h --slot= --devices-gone 30 sh %S/Inputs/pilot.sh %launch -n 1 %t > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefix=PILOT
// RUN: %line error %t.err "has not answered"
// PILOT: begin
// PILOT: status {{[1-9]}}
// PILOT: the pilot has not been ended

#include "offload.h"
#include <signal.h>

int main(void) {
  need_devices(1);
  puts("begin");
  fflush(stdout);
#pragma omp target device(0)
  for (;;) // until it is stopped
    kill(getpid(), SIGSTOP);
  return 0;
}
