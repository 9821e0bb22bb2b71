// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library has target regions and its program has none: the library's images are registered
// before the program's own constructors run, and LLVM 18 does not tell plugins when they are
// unregistered. The job still ends cleanly.
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang -shared -fPIC -DNAME=red -DSTEP=1 %S/Inputs/part.c -o %t.dir/libred.so
// RUN: %plain-clang %s -L%t.dir -Wl,-rpath,%t.dir -lred -o %t
// RUN: %run2 --devices-gone 5 --no-files %t 2> %t.err
// RUN: %line none %t.err

int red_count(int d);

int main(void) {
  int wrong = 0;
  for (int round = 1; round <= 3; ++round)
    for (int d = 0; d < 2; ++d)
      wrong += red_count(d) != 100 + round;
  return wrong;
}
