// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host may be the first rank, the last, or one in the middle.
//
// RUN: %clang %s -o %t
// RUN: %run --ranks hddd %t
// RUN: %if colon %{ %run --ranks dddh %t %}
// RUN: %if colon %{ %run --ranks dhdd %t %}

#include "offload.h"

int main(void) {
  need_devices(3);
  for (int d = 0; d < 3; ++d) {
    int x = d;
#pragma omp target map(tofrom : x) device(d)
    x += 40;
    CHECK(x == 40 + d);
  }
  return 0;
}
