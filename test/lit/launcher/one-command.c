// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One command for all ranks, as the documentation has it for use by hand: the first become the
// program, with its arguments and input; the status is the program's.
//
// RUN: %clang %s -o %t
// RUN: sh -c 'echo 41 | exec %run2 %t 2 -h' | FileCheck %s
// RUN: %run --ranks hhddd %t 1 > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=TWICE
// RUN: %run1 --rc 3 sh -c '%t 1; exit 3'
// RUN: %run1 --rc fail ./no-such-program > %t.out 2> %t.err
// RUN: %line some-error %t.err "can't run ./no-such-program: No such file"
// The launcher gives Open MPI 5 what that does not start without.
// RUN: env -u HOME %bare %launch -n 2 %t 2 > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=HOMELESS
// HOMELESS: 2 devices, 2, 1
//
// CHECK: 2 devices, -h, 42
// TWICE-DAG: 1 devices
// TWICE-DAG: 2 devices
//
// Without a launcher it is said how the command goes.
// RUN: not %device %t 2> %t.err
// RUN: %line error %t.err "llvm-offload-mpi-device PROGRAM"

#include "offload.h"

int main(int argc, char **argv) {
  int n = 0;
  CHECK(argc > 1);
  CHECK(omp_get_num_devices() >= atoi(argv[1]));
  if (argc > 2)
    CHECK(scanf("%d", &n) == 1);
#pragma omp target map(tofrom : n)
  n++;
  printf("%d devices, %s, %d\n", omp_get_num_devices(), argv[argc - 1], n);
  return 0;
}
