// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Large data, which goes through a buffer because the process can't access the accelerator's memory: to the devices,
// within one (also onto itself), from one to another, and back; several at once.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t
// RUN: %if llvm16 %{ %make-standin %}
// RUN: %if llvm16 %{ %standin %run2 %t %}

#include "offload.h"

enum { N = 3000000 };

int main(void) {
  need_devices(2);
  int here = omp_get_initial_device(), wrong = 0;
  int *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
  int *there[2];
  for (int i = 0; i < N; ++i)
    a[i] = i;
  for (int d = 0; d < 2; ++d)
    there[d] = omp_target_alloc(N * sizeof *a, d);
  CHECK(!omp_target_memcpy(there[0], a, N * sizeof *a, 0, 0, 0, here));
  // Onto itself.
  CHECK(!omp_target_memcpy(there[0], there[0], (N - 1) * sizeof *a, sizeof *a, 0, 0, 0));
  CHECK(!omp_target_memcpy(there[1], there[0], N * sizeof *a, 0, 0, 1, 0));
  int *p = there[1];
#pragma omp target teams distribute parallel for is_device_ptr(p) device(1)
  for (int i = 0; i < N; ++i)
    p[i] += 1;
  CHECK(!omp_target_memcpy(b, there[1], N * sizeof *b, 0, 0, here, 1));
  for (int i = 0; i < N; ++i)
    wrong += b[i] != (i ? i : 1);
  CHECK(wrong == 0);
#pragma omp parallel for
  for (int t = 0; t < 4; ++t) {
    int *mine = a + t * (N / 4);
#pragma omp target map(tofrom : mine[0 : N / 4]) device(t % 2) nowait
    for (int i = 0; i < N / 4; ++i)
      mine[i] *= 2;
#pragma omp taskwait
  }
  for (int i = 0; i < N / 4 * 4; ++i)
    wrong += a[i] != 2 * i;
  CHECK(wrong == 0);
  return 0;
}
