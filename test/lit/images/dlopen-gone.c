// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library with target regions is opened after another was closed, where something that
// can't be read has come to lie meanwhile. LLVM 15 to 17 show plugins the image of the
// first one again, and their own host plugin crashes on it; this one must be asked first
// and take it.
//
// LLVM 19 to 21 forget the mappings of a library's globals when the library goes, with
// their own host plugin too.
// XFAIL: plugins-inside && !llvm22
// LLVM 18's libomptarget mostly crashes in the regions of a library that is opened after the first
// region, with its own host plugin too.
// UNSUPPORTED: llvm18
// UNSUPPORTED: stock
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang -shared -fPIC -DNAME=red -DSTEP=1 %S/Inputs/part.c -o %t.dir/libred.so
// RUN: %clang -shared -fPIC -DNAME=blue -DSTEP=7 %S/Inputs/part.c -o %t.dir/libblue.so
// RUN: %clang %s -o %t.dir/program
// RUN: %run2 %t.dir/program %t.dir

#define _GNU_SOURCE
#include "offload.h"
#include <dlfcn.h>
#include <sys/mman.h>

/// Opens a library, counts twice on both devices and closes it.
static void use(const char *directory, const char *name, int step) {
  char path[4096], function[64];
  snprintf(path, sizeof path, "%s/lib%s.so", directory, name);
  snprintf(function, sizeof function, "%s_count", name);
  void *library = dlopen(path, RTLD_NOW);
  CHECK(library != NULL);
  int (*count)(int) = (int (*)(int))dlsym(library, function);
  Dl_info info;
  CHECK(count != NULL && dladdr((void *)count, &info));
  for (int d = 0; d < 2; ++d) {
    int first = count(d);
    CHECK(count(d) == first + step);
  }
  CHECK(dlclose(library) == 0);
  // Nothing else comes to lie here.
  for (char *at = info.dli_fbase, *end = at + (1 << 20); at < end; at += 4096)
    mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

int main(int argc, char **argv) {
  need_devices(2);
  for (int i = 0; argc == 2 && i < 5; ++i) {
    use(argv[1], "red", 1);
    use(argv[1], "blue", 7);
  }
  return 0;
}
