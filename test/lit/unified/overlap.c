// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// While one region runs and holds a page, another one of the same device begins, behind a write into that page by the
// program, and one by another device. It sees both, and what it writes itself is at home when it ends.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "unified.h"

enum { N = 4096 };

int main(void) {
  need_devices(2);
  int host = omp_get_initial_device(), now = 0;
  int *stage = llvm_omp_target_alloc_device(sizeof *stage, 0);
  CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
  unsigned char *p = aligned_alloc(4096, N);
  memset(p, 0, N);

  size_t late = 0;
#pragma omp target nowait device(0) is_device_ptr(stage) firstprivate(p) map(from : late)
  {
    late = p[9];
    p[0] = 1;
    __atomic_store_n(stage, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
      usleep(1000);
    p[8] = 8;
  }
  while (now != 1)
    CHECK(omp_target_memcpy(&now, stage, sizeof now, 0, 0, host, 0) == 0);

  for (int round = 1; round <= 10; ++round) {
    unsigned char seen[2] = {0, 0}, *s = seen;
    p[1] = round;
#pragma omp target device(1)
    p[2] = p[1] + 1;
    CHECK(p[2] == round + 1);
#pragma omp target device(0)
    {
      s[0] = p[1];
      s[1] = p[2];
      p[3] = p[2] + 1;
      p[4]++;
    }
    CHECK(seen[0] == round && seen[1] == round + 1);
    CHECK(p[3] == round + 2 && p[4] == round);
    // Behind a task that writes.
#pragma omp task depend(out : p[5]) shared(p)
    p[5] = round;
#pragma omp target nowait device(0) depend(inout : p[5]) firstprivate(p)
    p[6] = p[5] + 1;
#pragma omp task depend(in : p[5]) shared(p)
    p[7] = p[6] + 1;
    // The first region is a task of this one, too: only the last of the others is waited for.
#pragma omp taskwait depend(inout : p[5])
    CHECK(p[6] == round + 1 && p[7] == round + 2);
  }
  now = 2;
  CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
#pragma omp taskwait
  unsigned char wanted[10] = {1, 10, 11, 12, 10, 10, 11, 12, 8, 0};
  CHECK(memcmp(p, wanted, sizeof wanted) == 0 && late == 0);
  omp_target_free(stage, 0);
  free(p);
  return 0;
}
