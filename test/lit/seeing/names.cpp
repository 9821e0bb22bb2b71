// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels have the names of their functions in C++, templates included, and those of
// libraries that were closed keep theirs, also if another library's are at their place.
//
// LLVM 18's libomptarget mostly crashes in the regions of a library that is opened after the first
// region, with its own host plugin too.
// UNSUPPORTED: llvm18
// LLVM 21's crashes when the next region starts behind the end of such a library.
// UNSUPPORTED: llvm21
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clangxx -shared -fPIC -DNAME=red %S/Inputs/library.cpp -o %t.dir/libred.so
// RUN: %clangxx -shared -fPIC -DNAME=blue %S/Inputs/library.cpp -o %t.dir/libblue.so
// RUN: %clangxx %s -o %t.dir/program
// RUN: env OMPTARGET_MPI_STATS=1 OMPTARGET_MPI_TRACE=%t.json %run1 %t.dir/program %t.dir 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: %trace %t.json > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=TRACE
//
// CHECK:     regions 18
// CHECK-DAG: {{^ some::red\(int\), line 6 +3 }}
// CHECK-DAG: {{^ some::blue\(int\), line 6 +4 }}
// CHECK-DAG: {{^ (int )?twice<int>\(int\), line [0-9]+ +10 }}
//
// TRACE-DAG: device 0: some::red(int), line 6: 3
// TRACE-DAG: device 0: some::blue(int), line 6: 4
// TRACE-DAG: device 0: {{.*}}twice<int>(int), line {{[0-9]+}}: 10
// TRACE-DAG: program: launch some::red(int), line 6: 3
// TRACE-DAG: program: launch some::blue(int), line 6: 4

#include "offload.h"
#include <dlfcn.h>

static void use(const char *directory, const char *name, int times) {
  char path[4096];
  snprintf(path, sizeof path, "%s/lib%s.so", directory, name);
  void *library = dlopen(path, RTLD_NOW);
  CHECK(library);
  int (*call)(int) = (int (*)(int))dlsym(library, "call");
  CHECK(call);
  for (int i = 0; i < times; ++i)
    CHECK(call(i) == i + 1);
  CHECK(dlclose(library) == 0);
}

template <typename T> T twice(T n) {
#pragma omp target map(tofrom : n)
  n *= 2;
  return n;
}

int main(int, char **argv) {
  need_devices(1);
  use(argv[1], "red", 3);
  use(argv[1], "blue", 4);
  for (int i = 0; i < 10; ++i)
    CHECK(twice(i) == 2 * i);
}
