// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// --check tells whether all is there that a job needs; what is wrong is told before
// anything is started.
//
// RUN: %clang %s -o %t
// RUN: %bare %launch --check %t > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=GOOD
// GOOD-NOT: FAIL
// GOOD: ok program {{.*}}check.c.tmp{{(.help)?}}: offloads through libomptarget.so{{[.0-9]*(, which is replaced by one with the plugin in it)?$}}
// GOOD: ok plugin /{{.*}}libomptarget.rtl.mpi.so
// GOOD: ok launcher /{{.*}}/mpi
// GOOD: ok this host: llvm-offload-mpi-device {{[0-9.]+}} ({{.*[0-9]}})
// GOOD: ok this host: {{.+}}: {{[0-9]+}} cores, {{[0-9.]+}} GiB of memory
// GOOD-NOT: FAIL
//
// A library that only this program's loader finds; then none does.
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang -shared -fPIC -DLIBRARY %s -o %t.dir/libhelp.so
// RUN: %clang -DHELP %s -L%t.dir -lhelp -Wl,-rpath,%t.dir -o %t.help
// RUN: %bare %launch --check %t.help > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=GOOD
// RUN: rm %t.dir/libhelp.so
// RUN: not %launch --check %t.help > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=MISSING
// MISSING: FAIL library libhelp.so: not found on this host
//
// A program that was not built for offloading.
// RUN: %plain-clang %s -o %t.plain
// RUN: not %launch --check %t.plain | FileCheck %s --check-prefix=PLAIN
// PLAIN: FAIL program {{.*}}.plain: it is linked with no libomptarget; compile and link it with -fopenmp-targets
// RUN: not %launch %t.plain 2> %t.err
// RUN: %line error %t.err "plain was not built for offloading" "clang -fopenmp"
//
// RUN: not %launch %t.none 2> %t.err
// RUN: %line error %t.err "none: there is no such program"
// RUN: not %launch --mpi intel %t 2> %t.err
// RUN: %line error %t.err "--mpi intel: there are builds for"
// RUN: not %launch --hosts a:0 %t 2> %t.err
// RUN: %line error %t.err "--hosts: 'a:0': a number of devices is 1 or more"
// RUN: not %launch --hosts a:2 -n 3 %t 2> %t.err
// RUN: %line error %t.err "3 devices do not fit on the hosts, which may have 2"
// RUN: not %launch --hostfile %t.none %t 2> %t.err
// RUN: %line error %t.err "none: No such file"

#ifdef LIBRARY
int help(void) { return 0; }
#else
int help(void);
int main(void) {
  int n = 1;
#pragma omp target map(tofrom : n)
  n = 0;
#ifdef HELP
  n |= help();
#endif
  return n;
}
#endif
