// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang 15 and later link all images with libomptarget, which needs libLLVM. A device loads it only for an image that calls
// it, or for one whose user library does.
//
// A libomptarget of this node serves an accelerator.
// UNSUPPORTED: accelerators, no-system
// REQUIRES: plugin
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang %s -o %t.dir/neither
// RUN: %run %t.dir/neither
// RUN: %clang %s -DCALLED=omp_get_initial_device -o %t.dir/image
// RUN: %run %t.dir/image
// RUN: %plain-clang -shared -fPIC %S/Inputs/initial.c -o %t.dir/libinitial.so
// RUN: %clang %s -DCALLED=initial_device -o %t.dir/library -L%t.dir -linitial -Wl,-rpath,%t.dir
// RUN: %run %t.dir/library
// What a library that it opens calls is not known.
// RUN: %clang %s -DOPENS -o %t.dir/opens
// RUN: %run %t.dir/opens

#include "offload.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#pragma omp declare target
int initial_device(void);

static int is_loaded(const char *library) {
  char line[4096];
  int found = 0;
  FILE *mappings = fopen("/proc/self/maps", "r");
  while (mappings && fgets(line, sizeof line, mappings))
    found |= strstr(line, library) != NULL;
  if (mappings)
    fclose(mappings);
  return found;
}
#pragma omp end declare target

int main(void) {
  need_devices(1);
  int libomp, libomptarget, initial = -1;
#pragma omp target map(from : libomp, libomptarget) map(tofrom : initial)
  {
    libomp = is_loaded("/libomp.so");
    libomptarget = is_loaded("/libomptarget.so");
#ifdef CALLED
    initial = CALLED();
#endif
#ifdef OPENS
    initial = dlsym(RTLD_DEFAULT, "omp_get_initial_device") != NULL;
#endif
  }
  CHECK(libomp);
#ifdef CALLED
  // No device can be used on a device.
  CHECK(libomptarget && initial == 0);
#elif defined(OPENS)
  CHECK(libomptarget && initial == 1);
#else
  CHECK(!libomptarget);
#endif
  return 0;
}
