// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Failures are failures to LLVM 17 and 18 too: of load_binary, to which each of them
// expects another value. A libomptarget that nobody knows, and one that does not say
// which it is, end the program with a line that names the file. (With MPICH the job's
// status may be that of the device, which its launcher kills.)
//
// RUN: rm -rf %t.17 %t.18 %t.99 && mkdir %t.17 %t.18 %t.99
// RUN: %loader17 %t.17/libomptarget.so.17 && ln -s libomptarget.so.17 %t.17/libomptarget.so
// RUN: %clang %s -L%t.17 -Wl,-rpath,%t.17 -o %t.17/program
// RUN: env LOADER_DAMAGE=1 %run1 --rc 1 %t.17/program 2> %t.err
// RUN: %line error %t.err load_binary ELF
// RUN: FileCheck %s --input-file %t.err --check-prefix=TABLE
//
// RUN: %loader18 %t.18/libomptarget.so.18.1 && ln -s libomptarget.so.18.1 %t.18/libomptarget.so
// RUN: %clang %s -L%t.18 -Wl,-rpath,%t.18 -o %t.18/program
// RUN: env LOADER_DAMAGE=1 %run1 --slot %slot/llvm18 --rc 1 %t.18/program 2> %t.err
// RUN: %line error %t.err load_binary ELF
// RUN: FileCheck %s --input-file %t.err --check-prefix=STATUS
// RUN: env LIBOMPTARGET_RECORD=1 %run1 --slot %slot/llvm18 %t.18/program 2> %t.err
// RUN: %line error %t.err LIBOMPTARGET_RECORD "device 0"
//
// RUN: %loader17 %t.99/libomptarget.so -Wl,-soname,libomptarget.so.99
// RUN: cp %t.99/libomptarget.so %t.99/libomptarget.so.99
// RUN: %clang %s -L%t.99 -Wl,-rpath,%t.99 -o %t.99/program
// RUN: %run1 --rc fail %t.99/program 2> %t.err
// RUN: %line error %t.err libomptarget.so.99 "LLVM 99" "LLVM 14 to 18"
// RUN: %loader17 %t.99/libomptarget.so -Wl,-soname,libomptarget.so
// RUN: %clang %s -L%t.99 -Wl,-rpath,%t.99 -o %t.99/program
// RUN: %run1 --rc fail %t.99/program 2> %t.err
// RUN: %line error %t.err "not known which LLVM" libomptarget.so "LLVM 14 to 18"
//
// TABLE: loader: load_binary returned no table
// STATUS: loader: load_binary returned -1

#include "offload.h"

int main(void) {
  need_devices(1);
  return 0;
}
