// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What regions of a program with `requires` cost in messages: one that does not touch the program's memory is one out and
// one back, as ever. The program reads a large change from the device's process of its node itself: no message has it.
//
// RUN: %clang %s -o %t
// RUN: env LIBOMPTARGET_DEBUG=1 %run1 %t 2> %t.err
// RUN: %messages %t.err > %t.out
// RUN: FileCheck %s --match-full-lines --input-file %t.out
// REQUIRES: plugin, reach
//
// CHECK:      empty: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: private: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: large: {{[0-9]+}} out ({{[0-9]+}} bytes), {{[0-9]+}} back ({{[0-9][0-9][0-9]?}} bytes), 0 bulk

#include "unified.h"

static void begin(const char *name) { fprintf(stderr, "begin %s\n", name); }
static void end(void) { fprintf(stderr, "end\n"); }

int main(void) {
  int value = 3;
  need_devices(1);
  // The device may answer the last page that this region got after the region itself, but before the next region.
#pragma omp target
  {}
  begin("empty");
#pragma omp target
  {}
  end();
  begin("private");
#pragma omp target firstprivate(value)
  {
    if (value != 3)
      __builtin_trap();
  }
  end();
  enum { LARGE = 1 << 20 };
  static unsigned char memory[LARGE];
  unsigned char *p = memory;
  memset(p, 1, LARGE);
  begin("large");
#pragma omp target
  for (int i = 0; i < LARGE; ++i)
    p[i] += i % 200;
  end();
  for (int i = 0; i < LARGE; ++i)
    CHECK(p[i] == 1 + i % 200);
  return 0;
}
