// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions are found by the names that the program's symbol table has: a stripped program keeps those of the functions
// that it exports. What is missing is an error that names the function, or file and offset, and what to do.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t exported 2> %t.err
// RUN: %line none %t.err
// RUN: %run1 %t local 2> %t.err
// RUN: %line none %t.err
// RUN: %run1 --rc fail %t host-only 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "host_only" "declare target"
// RUN: %run1 --rc fail %t data 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "0x[0-9a-f]+ of .*functions.c.tmp, which has no symbol: make it declare target"
//
// RUN: %clang -rdynamic -s %s -o %t.stripped
// RUN: %run1 %t.stripped exported 2> %t.err
// RUN: %line none %t.err
// RUN: %run1 --rc fail %t.stripped local 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" %hostname "0x[0-9a-f]+ of .*functions.c.tmp.stripped, which has no symbol: make it declare target"
//
// RUN: %clang %s %S/Inputs/same-name.c -o %t.two
// RUN: %run1 --rc fail %t.two local 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" %hostname "several local functions are called local"
// RUN: %run1 %t.two exported 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "unified.h"

#pragma omp declare target
int exported(int x) { return x + 1; }
__attribute__((used)) static int local(int x) { return x + 2; }
#pragma omp end declare target

int host_only(int x) { return x + 3; }
static char data[64] = "no function";

struct work {
  int (*function)(int);
};

int main(int argc, char **argv) {
  need_devices(1);
  CHECK(argc == 2);
  struct work *work = malloc(sizeof *work);
  const char *which = argv[1];
  work->function = !strcmp(which, "exported")    ? exported
                   : !strcmp(which, "local")     ? local
                   : !strcmp(which, "host-only") ? host_only
                                                 : (int (*)(int))(void *)data;
  int result = 0;
#pragma omp target map(from : result)
  result = work->function(40);
  CHECK(result == (work->function == exported ? 41 : 42));
  free(work);
  return 0;
}
