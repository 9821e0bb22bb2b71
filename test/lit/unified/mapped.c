// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Mapped data in a program whose regions use its memory without `requires`: it behaves as ever, beside pointers that are
// not mapped, and pointers in mapped structures may be the program's.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_UNIFIED=on %run2 %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "offload.h"

enum { N = 10000 };

struct pair {
  int *mapped, *own;
};

int main(void) {
  need_devices(2);
  int *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
  for (int i = 0; i < N; ++i) {
    a[i] = i;
    b[i] = 0;
  }
#pragma omp target data map(to : a[0 : N])
  {
    // The device has a copy of a.
    a[1] = 1000;
#pragma omp target is_device_ptr(b)
    for (int i = 0; i < N; ++i) {
      b[i] = a[i];
      a[i] = 0;
    }
    CHECK(b[1] == 1 && b[N - 1] == N - 1 && a[N - 1] == N - 1 && a[1] == 1000);
#pragma omp target update from(a[0 : 2])
    CHECK(a[0] == 0 && a[1] == 0 && a[2] == 2);
  }

  struct pair pair = {a, b}, *p = &pair;
  int *own = b;
#pragma omp target map(to : p[0 : 1]) map(tofrom : p->mapped[0 : N])
  for (int i = 0; i < N; ++i) {
    p->mapped[i] = p->own[i] + 1;
    p->own[i] = -i;
  }
  CHECK(a[0] == 1 && a[1] == 2 && a[N - 1] == N && own[N - 1] == 1 - N);

  // Memory of a device stays its own: another device does not get it by its address.
  int *there = omp_target_alloc(sizeof *there, 0), value = 0;
#pragma omp target is_device_ptr(there, own) device(0)
  *there = own[5];
  CHECK(omp_target_memcpy(&value, there, sizeof value, 0, 0, omp_get_initial_device(), 0) == 0);
  CHECK(value == -5);
  omp_target_free(there, 0);
  free(a);
  free(b);
  return 0;
}
