// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Target regions and device globals in the program and in two libraries that it
// is linked with: each image has its own, on each of two devices.
//
// The libomptarget of LLVM 18 loads the images of a device in use no more.
// UNSUPPORTED: accelerators && llvm18
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang -shared -fPIC -DNAME=red -DSTEP=1 %S/Inputs/part.c -o %t.dir/libred.so
// RUN: %clang -shared -fPIC -DNAME=blue -DSTEP=7 %S/Inputs/part.c -o %t.dir/libblue.so
// RUN: %clang %s -o %t.dir/program -L%t.dir -lred -lblue -Wl,-rpath,%t.dir
// RUN: %run2 %t.dir/program

#include "offload.h"

int red_count(int d), blue_count(int d);

#pragma omp declare target
static int own = 5;
#pragma omp end declare target

int main(void) {
  need_devices(2);
  for (int round = 1; round <= 3; ++round)
    for (int d = 0; d < 2; ++d) {
      int value = 0;
      CHECK(red_count(d) == 100 + round);
      CHECK(blue_count(d) == 700 + 7 * round);
#pragma omp target map(from : value) device(d)
      value = own++;
      CHECK(value == 4 + round);
    }
  return 0;
}
