// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A dlopen'ed library whose image needs a user library that only that library's
// own run path leads to.
//
// LLVM 18's libomptarget mostly crashes in the regions of a library that is opened after the first
// region, with its own host plugin too.
// UNSUPPORTED: llvm18
//
// RUN: rm -rf %t.dir && mkdir -p %t.dir/deep
// RUN: %plain-clang -shared -fPIC %S/Inputs/twice.c -o %t.dir/deep/libtwice.so
// RUN: %clang -shared -fPIC %S/Inputs/outer.c -o %t.dir/libouter.so -L%t.dir/deep -ltwice -Wl,-rpath,%t.dir/deep
// RUN: %clang %s -o %t.dir/program
// RUN: %run1 %t.dir/program %t.dir/libouter.so

#include "offload.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
  need_devices(1);
  CHECK(argc == 2);
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library)
    fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  int (*outer)(int) = (int (*)(int))dlsym(library, "outer");
  CHECK(outer(20) == 41);
  return 0;
}
