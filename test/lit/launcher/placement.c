// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Devices share their node's cores where there are enough: each is bound to its own, has
// as many threads, and says so. On hosts of two cores and more.
//
// REQUIRES: hosts, multicore
// RUN: %clang %s -o %t
// RUN: %bare %hosts alpha,beta taskset -c 0,1 %launch --hosts beta:2 %t
// RUN: %bare %hosts alpha,beta taskset -c 0,1 %launch --hosts beta:2 --info > %t.out
// RUN: FileCheck %s --input-file %t.out
// RUN: env OMPTARGET_MPI_BIND=node %bare %hosts alpha,beta taskset -c 0,1 %launch --hosts beta:2 %t node
//
// CHECK: Cores 1 (0)
// CHECK: Cores 1 (1)

#define _GNU_SOURCE
#include "offload.h"
#include <sched.h>

/// The cores that a device may use, as bits, and its threads.
static void look(int device, unsigned *cores, int *threads) {
  unsigned bits = 0;
  int n = 0;
#pragma omp target map(from : bits, n) device(device)
  {
    bits = 0;
#pragma omp parallel reduction(| : bits)
    {
      cpu_set_t set;
      sched_getaffinity(0, sizeof set, &set);
      for (int i = 0; i < 32; ++i)
        bits |= CPU_ISSET(i, &set) ? 1u << i : 0;
    }
    n = omp_get_max_threads();
  }
  *cores = bits;
  *threads = n;
}

int main(int argc, char **argv) {
  (void)argv;
  need_devices(2);
  unsigned cores[2];
  int threads[2];
  for (int d = 0; d < 2; ++d)
    look(d, &cores[d], &threads[d]);
  CHECK(threads[0] == 1 && threads[1] == 1);
  if (argc > 1)
    CHECK((cores[0] & 3) == 3 && (cores[1] & 3) == 3);
  else
    CHECK(cores[0] == 1 && cores[1] == 2);
  return 0;
}
