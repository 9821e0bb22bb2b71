// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that follow each other run on one thread of the device, with one team of
// libomp's, although another thread receives while a kernel takes long. Once libomp
// knows more threads than there are cores, all of them yield at barriers.
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: env OMP_NUM_THREADS=2 %run1 %t

#include "offload.h"
#include <unistd.h>

#pragma omp declare target
int __kmpc_global_num_threads(void *);
#pragma omp end declare target

int main(void) {
  need_devices(1);
  int most = 0;
  for (int i = 0; i < 60; ++i) {
    int known = 0;
#pragma omp target map(from : known)
    {
#pragma omp parallel
      usleep(i % 3 * 1000);
      known = __kmpc_global_num_threads(NULL);
    }
    most = known > most ? known : most;
  }
  printf("libomp knows %d threads\n", most);
  CHECK(most == 2);
  return 0;
}
