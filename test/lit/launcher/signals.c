// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A signal sent to the launcher reaches the program and does no harm to devices; one
// that ends the launcher ends all.
//
// REQUIRES: openmpi
// (MPICH's Hydra keeps SIGUSR1 for itself.)
//
// RUN: %clang %s -o %t
// RUN: %bare %launch -n 2 %t
// RUN: %bare --rc fail %launch -n 2 %t end

#include "offload.h"
#include <signal.h>

static volatile sig_atomic_t got;

static void note(int signal) { got = signal; }

int main(int argc, char **argv) {
  (void)argv;
  signal(SIGUSR1, note);
  need_devices(2);
  // The launcher became mpirun, which starts the processes of its own node itself.
  kill(getppid(), argc > 1 ? SIGTERM : SIGUSR1);
  while (!got)
    usleep(1000);
  int n = 0;
#pragma omp target map(tofrom : n) device(1)
  n = 1;
  CHECK(n == 1 && got == SIGUSR1);
  return 0;
}
