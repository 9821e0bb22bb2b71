// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Objects are constructed once on each device, and destroyed once, by the program's libomptarget and not a second time by
// the device's own. (From LLVM 18 on that constructs them, and destroys nothing.)
//
// UNSUPPORTED: unloads
//
// RUN: %clangxx %s -o %t
// RUN: %run2 %t > %t.out
// RUN: FileCheck %s --input-file %t.out
// RUN: grep -c "^constructed elsewhere" %t.out | FileCheck %s --check-prefix=TWO
// RUN: grep -c "^destroyed elsewhere" %t.out | FileCheck %s --check-prefix=TWO
//
// CHECK: right
// TWO: {{^}}2{{$}}

#include "offload.h"

#pragma omp declare target
int counted;
struct Object {
  int value;
  Object() : value(7) {
    ++counted;
    printf("constructed %s\n", omp_is_initial_device() ? "here" : "elsewhere");
  }
  ~Object() { printf("destroyed %s\n", omp_is_initial_device() ? "here" : "elsewhere"); }
} object;
#pragma omp end declare target

int main() {
  need_devices(2);
  for (int d = 0; d < 2; ++d) {
    int value = 0, times = 0;
#pragma omp target map(from : value, times) device(d)
    {
      value = object.value;
      times = counted;
    }
    CHECK(value == 7 && times == 1);
  }
  printf("right\n");
  return 0;
}
