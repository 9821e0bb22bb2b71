// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Target regions in a static archive, linked into the program.
//
// clang 14 takes no device code from archives: no plugin finds the regions, LLVM's host
// plugin neither.
// UNSUPPORTED: llvm14
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang -c -DNAME=red -DSTEP=1 %S/Inputs/part.c -o %t.dir/red.o
// RUN: %clang -c -DNAME=blue -DSTEP=7 %S/Inputs/part.c -o %t.dir/blue.o
// RUN: %ar rc %t.dir/libparts.a %t.dir/red.o %t.dir/blue.o
// RUN: %clang %s -o %t.dir/program -L%t.dir -lparts
// RUN: %run2 %t.dir/program

#include "offload.h"

int red_count(int d), blue_count(int d);

int main(void) {
  need_devices(2);
  for (int round = 1; round <= 3; ++round)
    for (int d = 0; d < 2; ++d) {
      CHECK(red_count(d) == 100 + round);
      CHECK(blue_count(d) == 700 + 7 * round);
    }
  return 0;
}
