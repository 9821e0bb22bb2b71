// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region that calls a function of the program through its pointer fails with an error that says what to do, unless regions
// may use the program's memory. (Clang 15 and older map what the pointer points to, and so pass a null pointer.)
//
// RUN: %clang %s -o %t
// RUN: %run1 --rc fail %t 2> %t.err
// RUN: %line error %t.err "kernel main, line" "no code to execute" "an address of the host program" "`declare target indirect`" "OMPTARGET_MPI_UNIFIED=on"
// RUN: env OMPTARGET_MPI_UNIFIED=on %run1 %t
// REQUIRES: plugin
// UNSUPPORTED: accelerators, llvm14, llvm15

#include "offload.h"

#pragma omp declare target
void twice(int *n) { *n *= 2; }
#pragma omp end declare target

int main(void) {
  need_devices(1);
  void (*function)(int *) = twice;
  int n = 21;
#pragma omp target map(tofrom : n) firstprivate(function)
  function(&n);
  CHECK(n == 42);
  return 0;
}
