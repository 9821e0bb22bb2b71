// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The first device that needs an image gets it from the program; the others get it
// from each other, all of it, and whatever the order in which they are used.
//
// RUN: %clang %s -o %t
// RUN: env LIBOMPTARGET_DEBUG=1 %run --ranks hddddd %t 2> %t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=BULK --input-file %t.err
// REQUIRES: plugin
//
// CHECK: right on 5 devices
//
// BULK-NOT: bulk data to rank
// BULK:     bulk data to rank 4
// BULK-NOT: bulk data to rank {{[1235]}}

#include "offload.h"

enum { N = 1 << 20 };

// Makes the image large: it travels in several parts.
#pragma omp begin declare target
int table[N] = {[0 ... N / 2] = 3, [N / 2 + 1 ... N - 2] = 5, [N - 1] = 7};
#pragma omp end declare target

int main(void) {
  int devices = omp_get_num_devices(), right = 0;
  for (int i = 0; i < devices; ++i) {
    long sum = 0;
#pragma omp target map(from : sum) device((3 + i) % devices)
    {
      sum = 0;
      for (int j = 0; j < N; ++j)
        sum += (long)(j % 11) * table[j];
    }
    long expected = 0;
    for (int j = 0; j < N; ++j)
      expected += (long)(j % 11) * table[j];
    right += sum == expected;
  }
  printf("right on %d devices\n", right);
  return right != devices;
}
