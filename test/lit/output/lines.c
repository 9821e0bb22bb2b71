// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lines that several devices print at the same time are whole, short and long ones, and all of
// them come; also if a line is printed in pieces. Text without the end of a line does not wait
// for one.
//
// Worker processes can't have accelerators.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %run --ranks hdddd %t > %t.out
// RUN: %python %S/Inputs/lines.py %t.out 4 20000
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=4 %run1 %t > %t.out
// RUN: %python %S/Inputs/lines.py %t.out 4 20000
// REQUIRES: plugin

#include "offload.h"

enum { Devices = 4, Lines = 20000, Long = 60000 };

int main(void) {
  need_devices(Devices);
#pragma omp parallel num_threads(Devices)
  {
    int d = omp_get_thread_num();
    for (int i = 0; i < Lines; i += 1000) {
#pragma omp target device(d)
      {
        for (int k = i; k < i + 1000; ++k)
          printf("device %d line %d of those that it prints\n", d, k);
        printf("device %d begins", d);
        for (int k = 0; k < Long; ++k)
          putchar('a' + d);
        printf(" and ends\n");
      }
    }
  }
  // Alone, no device's text waits for the end of its line.
  for (int d = 0; d < Devices; ++d) {
#pragma omp target device(d)
    printf("<%d", d);
    printf(">");
  }
  printf("\n");
  return 0;
}
