// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels of clang 17 in a program that is linked with LLVM 18's libomptarget: that release's
// own kernels take one argument more, which these must not be given. Nor must they if they are
// in a library beside kernels of clang 18. (LLVM 18's own plugins can't do that.)
//
// Accelerators of LLVM 18 are given it always, and refuse such kernels.
// UNSUPPORTED: accelerators
//
// RUN: %clang17 %s -c -o %t.17.o
// RUN: %clang %t.17.o -o %t
// RUN: %run2 %t
// RUN: %clang17 -DPART -fPIC %s -c -o %t.part.o
// RUN: %clang -shared %t.part.o -o %t.so
// RUN: %clang -DWHOLE %s %t.so -o %t
// RUN: %run2 %t
// REQUIRES: plugin, llvm18, clang17

int part(int device, int *a, int n);

#ifndef WHOLE
int part(int device, int *a, int n) {
  int sum = 0;
#pragma omp target map(tofrom : a[0 : n], sum) firstprivate(n) device(device)
  for (int i = 0; i < n; ++i)
    sum += a[i]++;
  return sum;
}
#endif

#ifndef PART
#include "offload.h"

static int whole(int device, int *a, int n) {
  int sum = 0;
#pragma omp target map(tofrom : a[0 : n], sum) firstprivate(n) device(device)
  for (int i = 0; i < n; ++i)
    sum += a[i]++;
  return sum;
}

int main(void) {
  need_devices(2);
  for (int device = 0; device < 2; ++device) {
    int a[] = {1, 2, 3};
    CHECK(part(device, a, 3) == 6);
    CHECK(whole(device, a, 3) == 9);
    CHECK(part(device, a, 3) == 12);
    CHECK(a[0] == 4 && a[2] == 6);
  }
  return 0;
}
#endif
