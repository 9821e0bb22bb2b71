// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The handles of an interop object are null: the accelerator is another process's. Regions go on.
//
// REQUIRES: llvm16
// RUN: %clang %s -o %t
// RUN: %run1 %t

#include "offload.h"

int main(void) {
  int x = 1, status = 0;
  omp_interop_t object = omp_interop_none;
#pragma omp interop init(targetsync : object) device(0)
  CHECK(!omp_get_interop_ptr(object, omp_ipr_targetsync, &status));
  CHECK(!omp_get_interop_ptr(object, omp_ipr_device_context, &status));
#pragma omp interop destroy(object)
#pragma omp target map(tofrom : x)
  x += 2;
  CHECK(x == 3);
  return 0;
}
