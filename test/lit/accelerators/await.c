// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device receives while it copies from or to its accelerator: a copy here lasts until another thread's region runs. (Not
// the first one: a small copy to the device is not waited for, and all that follows is ordered behind it.)
//
// REQUIRES: llvm16
// RUN: %clang %s -o %t
// RUN: %make-standin
// RUN: %standin env STANDIN_AWAIT=submit:2 %run1 %t
// RUN: %standin env STANDIN_AWAIT=retrieve:1 %run1 %t
// RUN: %standin env STANDIN_AWAIT=retrieve:2 %run1 %t
// RUN: %standin env STANDIN_AWAIT=retrieve:3 %run1 %t

#include "offload.h"

enum { N = 3 << 20 };

/// A region that copies nothing.
static void region(void) {
#pragma omp target
  {
  }
}

int main(void) {
  int here = omp_get_initial_device(), failed = 0, is_over = 0;
  static char a[N], b[N];
  a[0] = a[N - 1] = 5;
  char *there = omp_target_alloc(N, 0);
  CHECK(there);
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 0) {
    failed |= omp_target_memcpy(there, a, 100, 0, 0, 0, here);
    failed |= omp_target_memcpy(there, a, N, 0, 0, 0, here);
    failed |= omp_target_memcpy(there, there, N / 2, 0, N / 2, 0, 0);
    failed |= omp_target_memcpy(b, there, 100, 0, 0, here, 0);
    failed |= omp_target_memcpy(b, there, N, 0, 0, here, 0);
#pragma omp atomic write
    is_over = 1;
  } else {
    for (int over = 0; !over;) {
      region();
#pragma omp atomic read
      over = is_over;
    }
  }
  CHECK(!failed && b[N - 1] == 5);
  return 0;
}
