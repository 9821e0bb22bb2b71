// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Global objects of C++ on the device: constructed in order before the first
// region, destroyed in the opposite order at the end, once each, in the device's
// process; the host's own objects as ever.
//
// UNSUPPORTED: no-system
// RUN: %clangxx %s -o %t
// RUN: %run1 %t > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=DEVICE
// RUN: FileCheck %s --input-file %t.out --check-prefix=HOST
// RUN: grep -c "^construct" %t.out | FileCheck %s --check-prefix=FOUR
// RUN: grep -c "^destroy" %t.out | FileCheck %s --check-prefix=FOUR
// REQUIRES: plugin
// From LLVM 18 on it is the accelerator's libomptarget that destroys them, if it is ended.
// UNSUPPORTED: accelerators && unloads
//
// DEVICE:      main in
// DEVICE:      construct first in [[PID:[0-9]+]]
// DEVICE-NEXT: construct second in [[PID]]
// DEVICE-NEXT: region sees 3 4 in [[PID]]
// DEVICE:      destroy second in [[PID]]
// DEVICE:      destroy first in [[PID]]
//
// HOST:      construct first in [[PID:[0-9]+]]
// HOST-NEXT: construct second in [[PID]]
// HOST-NEXT: main in [[PID]]
// HOST:      destroy second in [[PID]]
// HOST:      destroy first in [[PID]]
//
// FOUR: {{^}}4{{$}}

#include <cstdio>
#include <unistd.h>

struct Object {
  const char *name;
  int value;
  Object(const char *name, int value) : name(name), value(value) {
    printf("construct %s in %d\n", name, getpid());
  }
  ~Object() { printf("destroy %s in %d\n", name, getpid()); }
};

#pragma omp declare target
Object first("first", 3);
Object second("second", first.value + 1);
#pragma omp end declare target

int main() {
  printf("main in %d\n", getpid());
#pragma omp target
  printf("region sees %d %d in %d\n", first.value, second.value, getpid());
  return 0;
}
