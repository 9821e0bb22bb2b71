// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The loader never unloads an image with a unique symbol. Such an image works, but it
// can't be moved, because the copy would bind to the first one's symbols: an error.
//
// A libomptarget loads a second copy of any image.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %run %t
// Without room for unified memory, a device loads it where the program has it, if addresses are not random.
// RUN: not env OMPTARGET_MPI_UNIFIED=off setarch -R %run %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// CHECK: can't be moved: the loader keeps it
// REQUIRES: plugin

#include "offload.h"

int main(void) {
  long got = 0;
#pragma omp target map(from : got)
  __asm__(".pushsection .data\n"
          ".globl unique\n"
          ".type unique, @gnu_unique_object\n"
          ".size unique, 8\n"
          "unique: .quad 5\n"
          ".popsection\n"
          "mov unique@GOTPCREL(%%rip), %0\n"
          "mov (%0), %0"
          : "=r"(got));
  CHECK(got == 5);
  return 0;
}
