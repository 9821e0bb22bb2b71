// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two libraries whose files, and so images, are equal: each has globals of its own on every device, and outlives
// the other one.
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
// RUN: %clang -shared -fPIC -DNAME=part -DSTEP=3 %S/Inputs/part.c -o %t.dir/libone.so
// RUN: cp %t.dir/libone.so %t.dir/libtwo.so
// RUN: %clang %s -o %t.dir/program
// RUN: %run2 %t.dir/program %t.dir
// RUN: %run3 %t.dir/program %t.dir 3

#include "offload.h"
#include <dlfcn.h>

typedef int (*Count)(int device);

static void *open_library(const char *directory, const char *name, Count *count) {
  char path[4096];
  snprintf(path, sizeof path, "%s/lib%s.so", directory, name);
  void *library = dlopen(path, RTLD_NOW);
  CHECK(library != NULL);
  *count = (Count)dlsym(library, "part_count");
  CHECK(*count != NULL);
  return library;
}

int main(int argc, char **argv) {
  need_devices(argc == 3 ? 3 : 2); // a third one loads only the program's image
  Count one, two;
  void *first = open_library(argv[1], "one", &one);
  int start = one(0);
  void *second = open_library(argv[1], "two", &two);
  CHECK(two(1) == start && two(0) == start && one(1) == start);
  CHECK(one(0) == start + 3 && one(0) == start + 6 && two(0) == start + 3);
  dlclose(first);
  CHECK(two(0) == start + 6 && two(1) == start + 3);
  first = open_library(argv[1], "one", &one);
  CHECK(one(0) == start && one(1) == start && two(0) == start + 9);
  dlclose(second);
  CHECK(one(0) == start + 3 && one(1) == start + 3);
  return 0; // with the first one still open
}
