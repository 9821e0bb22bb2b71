// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The libomptarget of LLVM 19 and later has its plugins inside: the launcher replaces the
// one that a program is linked with by that of the same name which has this plugin, and
// where there is none it says what makes it. A program whose own has it is left as it is.
//
// RUN: %clang %s -o %t
// RUN: %bare %launch --dry-run %t | FileCheck %s -DLLVM=%llvm --check-prefix=DRY
// DRY: env LD_LIBRARY_PATH=/{{.*}}/lib/omptarget-mpi/{{[a-z-]+}}/llvm[[LLVM]]{{:?[^ ]*}} /
// RUN: %bare %launch --check %t | FileCheck %s -DLLVM=%llvm --check-prefix=REPLACED
// REPLACED: ok program {{.*}}: offloads through libomptarget.so.[[LLVM]].{{.*}}, which is replaced
// What LLVM only tries to find in an image is no error.
// RUN: %bare %launch -n 2 %t 2> %t.err
// RUN: FileCheck %s -DLLVM=%llvm --input-file %t.err --check-prefix=QUIET --allow-empty
// QUIET-NOT: omptarget
//
// Of this installation, but it may be for another MPI.
// RUN: env LD_LIBRARY_PATH=%slot %bare %launch --dry-run %t | FileCheck %s -DLLVM=%llvm --check-prefix=DRY
// The user's own.
// RUN: rm -rf %t.own && mkdir %t.own && cp -L %slot/lib*.so.* %slot/*.so %t.own
// RUN: env LD_LIBRARY_PATH=%t.own %bare %launch --dry-run %t | FileCheck %s -DLLVM=%llvm --check-prefix=OWN
// OWN-NOT: LD_LIBRARY_PATH
// RUN: env LD_LIBRARY_PATH=%t.own %bare %launch --check %t | FileCheck %s -DLLVM=%llvm --check-prefix=HAS
// HAS: ok program {{.*}}: offloads through libomptarget.so.[[LLVM]].{{.*}}, which has the plugin in it
//
// An installation without it.
// RUN: rm -rf %t.bare && cp -R %prefix %t.bare && rm -r %t.bare/lib/omptarget-mpi/*/llvm%llvm
// RUN: %bare --rc 1 %t.bare/bin/llvm-offload-mpirun %t 2> %t.err
// RUN: %line error %t.err "/llvm%llvm/libomptarget.so.%llvm" "make llvm%llvm"
// RUN: %bare --rc 1 %t.bare/bin/llvm-offload-mpirun --check %t | FileCheck %s -DLLVM=%llvm --check-prefix=GONE
// GONE: FAIL program {{.*}}: there is no {{.*}}`make llvm[[LLVM]]`
//
// One whose place the program itself fixes can't be replaced.
// RUN: %clang %s -o %t.fixed -Wl,--disable-new-dtags
// RUN: %bare --rc 1 %launch %t.fixed 2> %t.err
// RUN: %line error %t.err "DT_RPATH" "new-dtags"
// REQUIRES: plugins-inside

#include "offload.h"

int main(void) {
  int pid = 0;
  CHECK(omp_get_num_devices() == 2);
#pragma omp target map(from : pid)
  pid = getpid();
  CHECK(pid != 0 && pid != getpid());
  return 0;
}
