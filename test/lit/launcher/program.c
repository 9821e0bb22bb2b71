// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The launcher starts a program with as many devices as it is told; arguments,
// input, output and the status are the program's.
//
// RUN: %clang %s -o %t
// RUN: printf 'one\ntwo\n' | %bare --rc 7 %launch -n 2 %t 'a b' '' --devices '$x' > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out
// RUN: FileCheck %s --input-file %t.err --check-prefix=ERR
// RUN: printf 'one\ntwo\n' | env LD_LIBRARY_PATH=/nowhere %bare --rc 7 %launch --devices-per-node 2 -- %t 'a b' '' --devices '$x' 2> %t.err | FileCheck %s
//
// CHECK: argument a b.
// CHECK-NEXT: argument .
// CHECK-NEXT: argument --devices.
// CHECK-NEXT: argument $x.
// CHECK-NEXT: input one
// CHECK-NEXT: input two
// CHECK-NEXT: 2 devices
// ERR: a line of the program's

#include "offload.h"

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    printf("argument %s.\n", argv[i]);
  char line[100];
  while (fgets(line, sizeof line, stdin))
    printf("input %s", line);
  need_devices(2);
  printf("%d devices\n", omp_get_num_devices());
  fprintf(stderr, "a line of the program's\n");
  return 7;
}
