// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Host memory that a program has allocated can be mapped also where regions can't use it by its addresses: one that does is
// refused when it does so, shared memory when it is allocated.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 %t map 2> %t.err
// RUN: %line error %t.err "100000 bytes of shared memory on device 0" "OMPTARGET_MPI_UNIFIED=off" "worker processes .* can.t"
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 --rc fail %t touch 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 1" "in 100000 bytes of shared or host memory at 0x[0-9a-f]+" "map the data" "OMPTARGET_MPI_UNIFIED=off" "worker processes .* can.t"
// REQUIRES: plugin
// UNSUPPORTED: accelerators

#include "offload.h"

void *llvm_omp_target_alloc_host(size_t, int);
void *llvm_omp_target_alloc_shared(size_t, int);

enum { N = 100000 };

int main(int argc, char **argv) {
  CHECK(argc == 2 && omp_get_num_devices() == 2);
  // Device 1 is used afterwards only.
  unsigned char *p = llvm_omp_target_alloc_host(N, 0);
  CHECK(p != NULL);
  size_t wrong = 0;
  fill(p, N, 1);
#pragma omp target map(tofrom : p[0 : N], wrong) device(1)
  {
    wrong = differences(p, N, 1);
    fill(p, N, 2);
  }
  CHECK(wrong == 0 && differences(p, N, 2) == 0);
  need_devices(2);
  if (!strcmp(argv[1], "map"))
    return llvm_omp_target_alloc_shared(N, 0) != NULL;
#pragma omp target firstprivate(p) device(1)
  p[N / 2] = 3;
  return 0;
}
