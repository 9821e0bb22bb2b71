// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Locales with other decimal points and other letters change nothing: numbers of the
// product are read and written as ever, and a region prints as where it runs (in C).
//
// RUN: %clang %s -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && %python %S/Inputs/locales.py %t.dir
// RUN: env LOCPATH=%t.dir LC_ALL=de_DE.UTF-8 OMPTARGET_MPI_MEMORY=1g OMPTARGET_MPI_STATS=1 OMPTARGET_MPI_TRACE=%t.de.json %run1 %t > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out
// RUN: FileCheck %s --input-file %t.err --check-prefix=STATS
// RUN: %trace %t.de.json
// RUN: env LOCPATH=%t.dir LC_ALL=tr_TR.UTF-8 OMPTARGET_MPI_BIND=inherit OMP_TARGET_OFFLOAD=mandatory %run1 %t | FileCheck %s
//
// CHECK: region 1.5
// STATS: regions {{.*}} {{[0-9]+\.[0-9]+ .?s$}}
// STATS-NOT: {{[0-9],[0-9]}}

#include "offload.h"
#include <locale.h>

int main(void) {
  setlocale(LC_ALL, "");
  need_devices(1);
#pragma omp target
  printf("region %.1f\n", 1.5);
  return 0;
}
