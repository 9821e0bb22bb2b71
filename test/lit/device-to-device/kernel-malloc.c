// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies between devices, and within one, from and to what a kernel got from its
// own malloc work, without a word.
//
// What a kernel allocates on an accelerator can't be copied.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %run2 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err --allow-empty
// CHECK-NOT: omptarget-mpi:

#include "offload.h"

int main(void) {
  need_devices(2);
  for (int to = 0; to < 2; ++to) {
    long *own = NULL, ok = 0;
#pragma omp target map(from : own) device(0)
    {
      own = malloc(1000 * sizeof *own);
      for (int i = 0; i < 1000; ++i)
        own[i] = 3L * i;
    }
    long *there = omp_target_alloc(1000 * sizeof *own, to);
    CHECK(omp_target_memcpy(there, own, 1000 * sizeof *own, 0, 0, to, 0) == 0);
#pragma omp target is_device_ptr(there) map(tofrom : ok) device(to)
    for (int i = 0; i < 1000; ++i)
      ok += there[i] == 3L * i;
    CHECK(ok == 1000);
    omp_target_free(there, to);
  }
  return 0;
}
