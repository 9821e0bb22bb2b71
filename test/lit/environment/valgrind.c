// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program runs under valgrind, which finds no errors in the plugin.
//
// REQUIRES: plugin, llvm16, valgrind
// RUN: %clang -gdwarf-4 %s -o %t
// RUN: env OMPTARGET_MPI_START_TIMEOUT=200 OMPTARGET_MPI_HEARTBEAT=0 %run1 --timeout 240 valgrind -q --fair-sched=yes \
// RUN:   --error-exitcode=9 --suppressions=%S/../../sanitize/valgrind.supp %t

#include "offload.h"

int main(void) {
  need_devices(1);
  static unsigned char bytes[100000];
  fill(bytes, sizeof bytes, 1);
#pragma omp target map(tofrom : bytes)
  for (size_t i = 0; i < sizeof bytes; ++i)
    ++bytes[i];
  for (size_t i = 0; i < sizeof bytes; ++i)
    CHECK(bytes[i] == (unsigned char)(pattern(i, 1) + 1));
  return 0;
}
