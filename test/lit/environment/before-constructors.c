// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One function of the device executable runs before the constructors of libraries, which may start threads: the stack
// limit with which the device was started counts for those again. It reads its command line, which begins with the
// dynamic loader if that has executed it.
//
// RUN: %readelf -S -W %device | FileCheck %s --check-prefix=ONE
// RUN: %plain-clang -shared -fPIC %s -o %t.so
// RUN: env LD_PRELOAD=%t.so %device --supervised=9 --stack-limit=1234944 --help 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: sh -c 'exec env LD_PRELOAD=%t.so $(%readelf -p .interp %device | grep -o "/.*") %device \
// RUN:     --supervised=9 --stack-limit=1234944 --help' 2> %t.err
// RUN: FileCheck %s --input-file %t.err
//
// ONE: .preinit_array PREINIT_ARRAY {{[0-9a-f]+ [0-9a-f]+}} 000008
// CHECK: the constructor's stack limit is 1234944

#include <stdio.h>
#include <sys/resource.h>

__attribute__((constructor)) static void show(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) == 0)
    fprintf(stderr, "the constructor's stack limit is %lu\n", (unsigned long)limit.rlim_cur);
}
