// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With `requires unified_shared_memory` a map copies nothing: the region has the program's own memory, unless the map
// says `close`, or `always` with data that is mapped.
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
  // Nothing is mapped: `always` has nothing to copy.
#pragma omp target map(always, tofrom : a) map(from : there)
  {
    there = (long)a;
    a[5] = 3;
  }
  CHECK(there == here && a[5] == 3);
#pragma omp target data map(close, tofrom : a)
  {
    a[6] = 4;
#pragma omp target map(always, tofrom : a) map(from : there)
    {
      there = (long)a;
      a[7] = a[6] + 1;
    }
    // Into the copy and out of it.
    CHECK(there != here && a[6] == 4 && a[7] == 5);
  }
  CHECK(a[6] == 4 && a[7] == 5);
  return 0;
}
