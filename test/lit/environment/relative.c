// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plugin, a library of the program's and the trace are named relative to the directory in
// which the program was started, which it leaves before its first region.
//
// RUN: rm -rf %t.dir && mkdir -p %t.dir/lib %t.dir/other
// RUN: ln -s %slot %t.dir/slot
// RUN: %plain-clang -shared -fPIC -Wl,-soname,libtwice.so %S/../images/Inputs/twice.c -o %t.dir/lib/libtwice.so
// RUN: %clang %s -o %t -L%t.dir/lib -ltwice
//
// RUN: cd %t.dir && env LD_LIBRARY_PATH=slot:lib OMPTARGET_MPI_TRACE=started.json %run --slot= %t %t.dir/other
// RUN: %trace %t.dir/started.json
// RUN: %if openmpi %{ cd %t.dir && env LD_LIBRARY_PATH=slot:lib OMPTARGET_MPI_TRACE=spawned.json OMPTARGET_MPI_DEVICES=1 %run --no-mpirun --slot= %t %t.dir/other %}
// RUN: %if openmpi %{ %trace %t.dir/spawned.json %}
// RUN: rmdir %t.dir/other

#include "offload.h"

#pragma omp declare target
int twice(int x);
#pragma omp end declare target

int main(int argc, char **argv) {
  CHECK(argc == 2 && chdir(argv[1]) == 0);
  need_devices(1);
  int x = 21;
#pragma omp target map(tofrom : x)
  x = twice(x);
  CHECK(x == 42);
  return 0;
}
