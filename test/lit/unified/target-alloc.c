// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With `requires unified_shared_memory` the program itself may use what omp_target_alloc gives (OpenMP 5.0, 2.4), and any
// device. Copies from and to it work as ever.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t 2> %t.err
// RUN: not grep -i error %t.err
// REQUIRES: plugin

#include "unified.h"

enum { N = 100000 };

int main(void) {
  need_devices(2);
  int host = omp_get_initial_device();
  unsigned char *a = omp_target_alloc(N, 0), *b = omp_target_alloc(N, 1), *c = malloc(N);
  CHECK(a && b && c);
  size_t wrong = 0;
  fill(a, N, 0);
#pragma omp target map(tofrom : wrong) device(0)
  {
    wrong += differences(a, N, 0);
    fill(a, N, 1);
  }
  CHECK(!wrong && !differences(a, N, 1));
#pragma omp target is_device_ptr(a) map(tofrom : wrong) device(1)
  {
    wrong += differences(a, N, 1);
    fill(a, N, 2);
  }
  CHECK(!wrong && !differences(a, N, 2));
  CHECK(!omp_target_memcpy(b, a, N, 0, 0, 1, 0) && !differences(b, N, 2));
  CHECK(!omp_target_memcpy(c, b, N, 0, 0, host, 1) && !differences(c, N, 2));
  fill(c, N, 3);
  CHECK(!omp_target_memcpy(a, c, N, 0, 0, 0, host) && !differences(a, N, 3));
  omp_target_free(a, 0);
  omp_target_free(b, 1);
  free(c);
  return 0;
}
