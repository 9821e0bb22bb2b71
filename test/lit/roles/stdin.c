// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that reads its input, as the first rank: every byte is the host's,
// none a device's, also when a region runs before it is read.
//
// RUN: %clang %s -o %t
// RUN: %t write > %t.in
// RUN: %run --ranks hdd %t < %t.in
// RUN: cat %t.in | %run --ranks hdd %t

#include "offload.h"

// Less than 64 KiB: MPICH's launcher gives up if a program is slow to read more.
enum { LINES = 8000 };

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1) {
    for (int i = 0; i < LINES; ++i)
      printf("%d\n", i);
    return 0;
  }
  need_devices(2);
  int number, count = 0;
  while (scanf("%d", &number) == 1) {
    CHECK(number == count);
    if (count++ % 1000 == 0) {
      int end = 0;
#pragma omp target map(tofrom : end) device(count % 2)
      end = getchar() == EOF;
      CHECK(end);
    }
  }
  CHECK(count == LINES);
  return 0;
}
