// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A constructor of the device's image that crashes, exits or throws fails the region for which
// the image is loaded; a destructor fails the program.
//
// The error names libomptarget, which loads the image of an accelerator.
// UNSUPPORTED: accelerators
//
// RUN: %clangxx %s -o %t
// RUN: env HOW=trap %fails-clean %t 2> %t.err
// RUN: %line error %t.err "device [01] .*: a constructor or destructor of the program.s image failed: signal SIGILL .illegal instruction"
// RUN: env HOW=exit %fails %t 2> %t.err
// RUN: %line error %t.err "device [01] .*: a constructor or destructor of the program.s image failed: it called exit, with status 3"
// RUN: env HOW=throw %fails %t 2> %t.err
// RUN: %line error %t.err "device [01] .*: a constructor or destructor of the program.s image failed: signal SIGABRT"
// RUN: %if unloads %{ env HOW=late %fails %t 2> %t.err %}
// RUN: %if unloads %{ %line some-error %t.err "a constructor or destructor of the program.s image failed: signal SIGILL" %}

#include "offload.h"
#include <cstdlib>
#include <cstring>

void on_device() {
  const char *how = getenv("HOW");
  if (!strcmp(how, "trap"))
    __builtin_trap();
  if (!strcmp(how, "exit"))
    exit(3);
  if (!strcmp(how, "throw"))
    throw 1;
}

void late_on_device() {
  if (!strcmp(getenv("HOW"), "late"))
    __builtin_trap();
}

#pragma omp declare variant(on_device) match(device = {kind(nohost)})
void on_host() {}
#pragma omp declare variant(late_on_device) match(device = {kind(nohost)})
void late_on_host() {}

#pragma omp declare target
__attribute__((constructor)) void construct() { on_host(); }
__attribute__((destructor)) void destroy() { late_on_host(); }
#pragma omp end declare target

int main() {
  need_devices(2);
#pragma omp target device(1)
  {}
  return 0;
}
