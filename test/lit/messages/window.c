// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A part of a large array that the program often copies comes to lie in memory that both
// share: then copies need no message. Its contents stay, also when the array is freed
// and another one takes its place.
//
// REQUIRES: plugin, reach
// An accelerator's memory can't be shared.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: env -u OMPTARGET_MPI_SPARES LIBOMPTARGET_DEBUG=1 %run1 %t 2> %t.err
// RUN: %messages %t.err > %t.out
// RUN: FileCheck %s --match-full-lines --input-file %t.out
//
// CHECK:      first: {{[1-9][0-9]*}} out ({{.*}}
// CHECK-NEXT: updates: 0 out (0 bytes), 0 back (0 bytes), 0 bulk
// CHECK-NEXT: region: 1 out ({{.*}}
// CHECK-NEXT: another: 0 out (0 bytes), 0 back (0 bytes), 0 bulk

#include "offload.h"

enum { N = 1 << 20, ROW = 1000, AT = 12345, OFTEN = 40 };

static int a[N];

static void begin(const char *name) { fprintf(stderr, "begin %s\n", name); }
static void end(void) { fprintf(stderr, "end\n"); }

/// Copies the row to and fro, with another value each time.
static void updates(int times) {
  for (int n = 0; n < times; ++n) {
    for (int i = 0; i < ROW; ++i)
      a[AT + i] = n + i;
#pragma omp target update to(a[AT : ROW])
    memset(a + AT, 0, ROW * sizeof *a);
#pragma omp target update from(a[AT : ROW])
    for (int i = 0; i < ROW; ++i)
      CHECK(a[AT + i] == n + i);
  }
}

int main(void) {
  need_devices(1);
  for (int i = 0; i < N; ++i)
    a[i] = i;
#pragma omp target enter data map(to : a)
  begin("first");
  updates(OFTEN);
  end(), begin("updates");
  updates(OFTEN);
  end(), begin("region");
#pragma omp target map(tofrom : a)
  for (int i = 0; i < N; ++i)
    a[i]++;
  end();
#pragma omp target exit data map(from : a)
  for (int i = 0; i < N; ++i)
    CHECK(a[i] == (i < AT || i >= AT + ROW ? i : OFTEN - 1 + i - AT) + 1);
#pragma omp target enter data map(to : a)
  begin("another");
  updates(OFTEN);
  end();
#pragma omp target exit data map(from : a)
  for (int i = AT + ROW; i < N; ++i)
    CHECK(a[i] == i + 1);
  return 0;
}
