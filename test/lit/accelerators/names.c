// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two images with equal names of kernels and globals, each with its own; a library that is loaded again.
//
// The libomptarget of LLVM 18 loads the images of a device in use no more.
// UNSUPPORTED: llvm18
//
// RUN: %clang -DADDEND=1 -shared -fPIC %S/Inputs/add.c -o %t.one.so
// RUN: %clang -DADDEND=20 -shared -fPIC %S/Inputs/add.c -o %t.two.so
// RUN: %clang %s -ldl -o %t
// RUN: %run2 %t %t.one.so %t.two.so
// RUN: %if llvm16 %{ %make-standin %}
// RUN: %if llvm16 %{ %standin %run2 %t %t.one.so %t.two.so %}

#include "offload.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
  CHECK(argc == 3);
  need_devices(2);
  void *library[2];
  int (*add[2])(int, int);
  for (int i = 0; i < 2; ++i) {
    library[i] = dlopen(argv[i + 1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library[i] != NULL);
    *(void **)&add[i] = dlsym(library[i], "add");
  }
  for (int round = 0; round < 2; ++round)
    for (int d = 0; d < 2; ++d) {
      // Each counts its calls on each device.
      CHECK(add[0](100, d) == 101 + round);
      CHECK(add[1](100, d) == 120 + round);
    }
#if __clang_major__ < 19
  // (That of LLVM 19 forgets mappings when a library is closed, later ones keep its images and load them twice.)
  dlclose(library[0]);
  CHECK(add[1](100, 0) == 122);
  library[0] = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(library[0] != NULL);
  *(void **)&add[0] = dlsym(library[0], "add");
  CHECK(add[0](100, 1) == 101);
  CHECK(add[1](100, 0) == 123);
#endif
  return 0;
}
