// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With `requires unified_shared_memory` a map copies nothing: the region has the program's own memory, unless the map
// says `close`.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "unified.h"

int main(void) {
  need_devices(1);
  int a[100] = {0}, *p = a;
  long here = (long)a, there = 0;
#pragma omp target map(to : a) map(from : there)
  {
    there = (long)a;
    a[1] = 5;
  }
  // `to` or not, it is the same memory.
  CHECK(there == here && a[1] == 5);
#pragma omp target data map(close, tofrom : a)
  {
    a[2] = 9;
#pragma omp target map(close, tofrom : a) map(from : there) is_device_ptr(p)
    {
      there = (long)a;
      a[3] = a[2] + 1;
      p[4] = 7;
    }
    CHECK(there != here && a[4] == 7 && a[3] == 0);
  }
  // The copy that was made before comes back whole.
  CHECK(a[3] == 1 && a[2] == 0 && a[1] == 5);
  return 0;
}
