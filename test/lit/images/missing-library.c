// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user library that an image needs is gone when the device looks for it: an
// error line that names the library, the device, its rank and its host, and no
// result.
//
// UNSUPPORTED: no-system
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %plain-clang -shared -fPIC %S/Inputs/twice.c -o %t.dir/libtwice.so
// RUN: %clang %s -o %t.dir/program -L%t.dir -ltwice -Wl,-rpath,%t.dir
// RUN: %run1 --rc fail %t.dir/program %t.dir/libtwice.so > %t.out 2> %t.err
// RUN: %line error %t.err "image" libtwice.so "device 0" "rank 1" %hostname
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: begin
// CHECK-NOT: after

#include <stdio.h>

#pragma omp declare target
int twice(int x);
#pragma omp end declare target

int main(int argc, char **argv) {
  int x = 21;
  puts("begin");
  fflush(stdout);
  if (argc != 2 || remove(argv[1]) != 0)
    return 0;
#pragma omp target map(tofrom : x)
  x = twice(x);
  printf("after: %d\n", x);
  return 0;
}
