// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies outside of a launch: a small and a large one to the device, and back. Ends with 0 if all succeed.

#include "offload.h"

enum { N = 3 << 20 };

int main(void) {
  int here = omp_get_initial_device(), failed = 0;
  static char a[N], b[N];
  a[0] = a[N - 1] = 5;
  char *there = omp_target_alloc(N, 0);
  CHECK(there);
  failed |= omp_target_memcpy(there, a, 100, 0, 0, 0, here);
  failed |= omp_target_memcpy(there, a, N, 0, 0, 0, here);
  failed |= omp_target_memcpy(there, there, N / 2, 0, N / 2, 0, 0);
  failed |= omp_target_memcpy(b, there, 100, 0, 0, here, 0);
  failed |= omp_target_memcpy(b, there, N, 0, 0, here, 0);
  return failed ? 1 : b[N - 1] != 5;
}
