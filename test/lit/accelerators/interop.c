// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The handles of an interop object are null: the accelerator is another process's. The status of the query does not tell; the
// plugin has no say in it. Regions go on.
//
// REQUIRES: llvm16
// RUN: %clang %s -o %t
// RUN: %run1 %t

#include "offload.h"

int main(void) {
  int x = 1, status = -1;
  omp_interop_t object = omp_interop_none;
#pragma omp interop init(targetsync : object) device(0)
  CHECK(object != omp_interop_none);
  CHECK(!omp_get_interop_ptr(object, omp_ipr_targetsync, &status) && status == omp_irc_success);
#pragma omp interop destroy(object)
#pragma omp interop init(target : object) device(0)
  CHECK(object != omp_interop_none);
  CHECK(!omp_get_interop_ptr(object, omp_ipr_device_context, &status) && status == omp_irc_success);
  CHECK(!omp_get_interop_ptr(object, omp_ipr_device, &status) && status == omp_irc_no_value);
#pragma omp interop destroy(object)
#pragma omp target map(tofrom : x)
  x += 2;
  CHECK(x == 3);
  return 0;
}
