// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Libraries with target regions that come and go while the program runs: one is
// opened and closed, another opened, both opened; the program's own regions go
// on working throughout. A third device gets all of them and loads none.
//
// LLVM 19 to 21 forget the mappings of a library's globals when the library goes,
// with their own host plugin too.
// XFAIL: plugins-inside && !llvm22
// LLVM 18's libomptarget mostly crashes in the regions of a library that is opened after the first
// region, with its own host plugin too.
// UNSUPPORTED: llvm18
// LLVM 15's host plugin (not this one) crashes at the end: libomptarget shows plugins
// the images of libraries that have gone.
// UNSUPPORTED: llvm15 && stock
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang -shared -fPIC -DNAME=red -DSTEP=1 %S/Inputs/part.c -o %t.dir/libred.so
// RUN: %clang -shared -fPIC -DNAME=blue -DSTEP=7 %S/Inputs/part.c -o %t.dir/libblue.so
// RUN: %clang %s -o %t.dir/program
// RUN: %run2 %t.dir/program %t.dir
// RUN: %run3 %t.dir/program %t.dir late

#include "offload.h"
#include <dlfcn.h>

static const char *directory;

static void *open_library(const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/lib%s.so", directory, name);
  void *library = dlopen(path, RTLD_NOW);
  if (!library)
    fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  return library;
}

/// Counts three times on the first two devices with the library's function.
static void use(void *library, const char *function, int step) {
  int (*count)(int) = (int (*)(int))dlsym(library, function);
  CHECK(count != NULL);
  int first = count(0);
  CHECK(count(0) == first + step && count(0) == first + 2 * step);
  first = count(1);
  CHECK(count(1) == first + step && count(1) == first + 2 * step);
}

static void own_region(void) {
  int n = 1;
#pragma omp target map(tofrom : n) device(1)
  n += 1;
  CHECK(n == 2);
}

int main(int argc, char **argv) {
  directory = argv[1];
  if (argc == 2) // else the first library comes before any device is in use
    need_devices(2);
  void *red = open_library("red");
  use(red, "red_count", 1);
  CHECK(omp_get_num_devices() >= 2);
  dlclose(red);
  own_region();
  void *blue = open_library("blue");
  use(blue, "blue_count", 7);
  own_region();
  red = open_library("red");
  use(red, "red_count", 1);
  use(blue, "blue_count", 7);
  dlclose(blue);
  use(red, "red_count", 1);
  own_region();
  return 0; // with red still open
}
