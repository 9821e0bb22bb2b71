// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kinds of memory: host memory is the host's and can be mapped, device memory is
// the device's, and locked memory serves as before. (Shared memory: unified/shared.c.)
//
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "offload.h"

void *llvm_omp_target_alloc_host(size_t, int);
void *llvm_omp_target_alloc_device(size_t, int);
#if __clang_major__ < 16 // has no others to free with, and no locks
#define llvm_omp_target_free_host omp_target_free
#define llvm_omp_target_free_device omp_target_free
#else
void llvm_omp_target_free_host(void *, int);
void llvm_omp_target_free_device(void *, int);
void *llvm_omp_target_lock_mem(void *, size_t, int);
void llvm_omp_target_unlock_mem(void *, int);
#endif

enum { N = 100000 };

static void map_it(unsigned char *p) {
  size_t wrong = 0;
  fill(p, N, 1);
#pragma omp target map(tofrom : p[0 : N], wrong)
  {
    wrong = differences(p, N, 1);
    fill(p, N, 2);
  }
  CHECK(wrong == 0 && differences(p, N, 2) == 0);
}

int main(void) {
  need_devices(1);
  unsigned char *host = llvm_omp_target_alloc_host(N, 0);
  CHECK(host != NULL);
  map_it(host);
  llvm_omp_target_free_host(host, 0);

  unsigned char *device = llvm_omp_target_alloc_device(N, 0);
  CHECK(device != NULL);
  size_t wrong = 0;
#pragma omp target is_device_ptr(device) map(tofrom : wrong)
  {
    fill(device, N, 3);
    wrong = differences(device, N, 3);
  }
  CHECK(wrong == 0);
  llvm_omp_target_free_device(device, 0);

#if __clang_major__ >= 16 && __clang_major__ != 18 // LLVM 18's always returns null
  unsigned char *locked = malloc(N);
  CHECK(llvm_omp_target_lock_mem(locked, N, 0) != NULL);
  map_it(locked);
  llvm_omp_target_unlock_mem(locked, 0);
  free(locked);
#endif
  return 0;
}
