// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many messages things cost: an ordinary region one out and one back, however
// many variables it maps; memory none at all; data that does not fit into a message
// as few as hold it, or one out and one back beside the data itself. LLVM 14 needs
// what it retrieves at once: each variable is a message. (With statistics, no data
// goes through shared memory; near.c has that.)
//
// RUN: %clang %s -o %t
// RUN: env LIBOMPTARGET_DEBUG=1 OMPTARGET_MPI_STATS=1 %run1 %t 2> %t.err
// RUN: %messages %t.err > %t.out
// RUN: FileCheck %s --match-full-lines --input-file %t.out \
// RUN:   %if llvm14 %{ --check-prefixes=CHECK,LLVM14 %} %else %{ --check-prefixes=CHECK,LATER %}
// REQUIRES: plugin
//
// CHECK:      empty: 1 out ([[#%u,EMPTY:]] bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: int: 1 out ({{[0-9]+}} bytes), 1 back (13 bytes), 0 bulk
// CHECK-NEXT: scalars and 4 KiB: 1 out ({{4[0-9]+}} bytes), 1 back (4105 bytes), 0 bulk
// CHECK-NEXT: resident: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: alloc and free: 0 out (0 bytes), 0 back (0 bytes), 0 bulk
// LLVM14-NEXT: target data: 23 out ({{8[0-9]+}} bytes), 23 back (82127 bytes), 0 bulk
// LATER-NEXT: target data: 6 out ({{8[0-9]+}} bytes), 6 back (81974 bytes), 0 bulk
// CHECK-NEXT: 1 MiB in: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 1 bulk
// CHECK-NEXT: 1 MiB out: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 1 bulk

#include "offload.h"

enum { N = 1024, MANY = 1 << 18 };

static void begin(const char *name) { fprintf(stderr, "begin %s\n", name); }
static void end(void) { fprintf(stderr, "end\n"); }

static int a[20][N], large[MANY];

/// Everything once without counting: the first use of a device costs more.
static void all(int count) {
  int x = 0, s[8] = {0};
  if (count)
    begin("empty");
#pragma omp target
  {}
  if (count)
    end(), begin("int");
#pragma omp target map(tofrom : x)
  x++;
  if (count)
    end(), begin("scalars and 4 KiB");
  int s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3], s4 = s[4], s5 = s[5], s6 = s[6], s7 = s[7];
#pragma omp target map(tofrom : a[0])                                          \
    firstprivate(s0, s1, s2, s3, s4, s5, s6, s7)
  a[0][0] += s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;
  if (count)
    end();
#pragma omp target data map(to : large)
  {
    if (count)
      begin("resident");
#pragma omp target map(tofrom : large)
    large[1]++;
    if (count)
      end();
  }
  if (count)
    begin("alloc and free");
  omp_target_free(omp_target_alloc(1 << 20, 0), 0);
  if (count)
    end(), begin("target data");
#pragma omp target data map(tofrom : a[0], a[1], a[2], a[3], a[4], a[5], a[6], \
                                a[7], a[8], a[9], a[10], a[11], a[12], a[13],  \
                                a[14], a[15], a[16], a[17], a[18], a[19])
  {
  }
  if (count)
    end();
  int *there = omp_target_alloc(sizeof large, 0), here = omp_get_initial_device();
  if (count)
    begin("1 MiB in");
  omp_target_memcpy(there, large, sizeof large, 0, 0, 0, here);
  if (count)
    end(), begin("1 MiB out");
  omp_target_memcpy(large, there, sizeof large, 0, 0, here, 0);
  if (count)
    end();
  omp_target_free(there, 0);
  CHECK(x == 1);
}

int main(void) {
  need_devices(1);
  all(0);
  all(1);
  return 0;
}
