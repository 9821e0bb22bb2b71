// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared and host allocations are memory of the program that regions of all devices use by its addresses, without
// `requires`. Before there is one, a forgotten map is an error; OMPTARGET_MPI_UNIFIED=off refuses them. So it is with
// omp_alloc and the allocators of such memory.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t shared 2> %t.err
// RUN: %line none %t.err
// RUN: %run2 %t host 2> %t.err
// RUN: %line none %t.err
// RUN: %run2 %t shared-allocator 2> %t.err
// RUN: %line none %t.err
// RUN: %run2 %t host-allocator 2> %t.err
// RUN: %line none %t.err
// RUN: env OMPTARGET_MPI_UNIFIED=off %run2 --rc fail %t shared-allocator 2> %t.err
// RUN: %line error %t.err "device 0" "rank 1" %hostname "OMPTARGET_MPI_UNIFIED=on"
// RUN: env OMPTARGET_MPI_UNIFIED=off %run2 --rc fail %t shared 2> %t.err
// RUN: %line error %t.err "device 0" "rank 1" %hostname "OMPTARGET_MPI_UNIFIED=on"
// RUN: env OMPTARGET_MPI_UNIFIED=on %run2 %t shared 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "offload.h"

void *llvm_omp_target_alloc_shared(size_t, int);
void *llvm_omp_target_alloc_host(size_t, int);
#if __clang_major__ < 16 // has no others to free with
#define llvm_omp_target_free_shared omp_target_free
#define llvm_omp_target_free_host omp_target_free
#else
void llvm_omp_target_free_shared(void *, int);
void llvm_omp_target_free_host(void *, int);
#endif

enum { N = 1000000 };

static void *allocate(const char *how) {
  if (!strcmp(how, "shared"))
    return llvm_omp_target_alloc_shared(N, 0);
  if (!strcmp(how, "host"))
    return llvm_omp_target_alloc_host(N, 0);
  if (!strcmp(how, "shared-allocator"))
    return omp_alloc(N, llvm_omp_target_shared_mem_alloc);
  CHECK(!strcmp(how, "host-allocator"));
  return omp_alloc(N, llvm_omp_target_host_mem_alloc);
}

static void release(const char *how, void *p) {
  if (!strcmp(how, "shared"))
    llvm_omp_target_free_shared(p, 0);
  else if (!strcmp(how, "host"))
    llvm_omp_target_free_host(p, 0);
  else // Not omp_null_allocator: LLVM's omp_free does not look for the allocator of such memory.
    omp_free(p, !strcmp(how, "host-allocator") ? llvm_omp_target_host_mem_alloc : llvm_omp_target_shared_mem_alloc);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(2);
  unsigned char *p = allocate(argv[1]);
  CHECK(p != NULL);
  size_t wrong = 0;
  fill(p, N, 0);
  for (int round = 0; round < 6; ++round) {
#pragma omp target is_device_ptr(p) map(tofrom : wrong) device(round % 2)
    {
      wrong += differences(p, N, round);
      fill(p, N, round + 1);
    }
    CHECK(differences(p, N, round + 1) == 0);
  }
  CHECK(wrong == 0);
  release(argv[1], p);
  return 0;
}
