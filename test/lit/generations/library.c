// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Regions in a library, of a program that has none itself: to the library all is
// registered before the program's own start-up code runs, and LLVM 18 tells plugins
// nothing when it goes. The end is an orderly one all the same.
//
// RUN: rm -rf %t.17 %t.18 && mkdir %t.17 %t.18
// RUN: %loader17 %t.17/libomptarget.so.17 && ln -s libomptarget.so.17 %t.17/libomptarget.so
// RUN: %clang -shared -fPIC -DNAME=red -DSTEP=1 %S/../images/Inputs/part.c -L%t.17 -Wl,-rpath,%t.17 -o %t.17/libred.so
// RUN: %plain-clang %s -L%t.17 -Wl,-rpath,%t.17 -lred -o %t.17/program
// RUN: %run2 --devices-gone 5 --no-files %t.17/program 2> %t.err
// RUN: %line none %t.err
//
// RUN: %loader18 %t.18/libomptarget.so.18.1 && ln -s libomptarget.so.18.1 %t.18/libomptarget.so
// RUN: %clang -shared -fPIC -DNAME=red -DSTEP=1 %S/../images/Inputs/part.c -L%t.18 -Wl,-rpath,%t.18 -o %t.18/libred.so
// RUN: %plain-clang %s -L%t.18 -Wl,-rpath,%t.18 -lred -o %t.18/program
// RUN: %run2 --slot %slot/llvm18 --devices-gone 5 --no-files %t.18/program 2> %t.err
// RUN: %line none %t.err

int red_count(int d);

int main(void) {
  int wrong = 0;
  for (int round = 1; round <= 3; ++round)
    for (int d = 0; d < 2; ++d)
      wrong += red_count(d) != 100 + round;
  return wrong;
}
