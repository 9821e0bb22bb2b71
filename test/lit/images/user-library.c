// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region calls a function of a user library that only the program's run path
// leads to: the device finds the library where the host has it loaded.
//
// UNSUPPORTED: no-system
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %plain-clang -shared -fPIC %S/Inputs/twice.c -o %t.dir/libtwice.so
// RUN: %clang %s -o %t.dir/program -L%t.dir -ltwice -Wl,-rpath,%t.dir
// RUN: %run2 %t.dir/program

#include "offload.h"

#pragma omp declare target
int twice(int x);
#pragma omp end declare target

int main(void) {
  need_devices(2);
  int x = 21;
#pragma omp target map(tofrom : x) device(1)
  x = twice(x);
  CHECK(x == 42);
  CHECK(twice(x) == 84);
  return 0;
}
