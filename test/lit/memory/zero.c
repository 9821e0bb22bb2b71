// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nothing at all can be mapped, copied, updated and freed.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "offload.h"

struct empty {};

int main(void) {
  need_devices(1);
  int host = omp_get_initial_device(), n = 0, ran = 0;
  char *p = malloc(16);
#pragma omp target map(tofrom : p[0 : n], ran)
  ran = 1;
  CHECK(ran == 1);
#pragma omp target data map(tofrom : p[0 : 16])
  {
#pragma omp target map(tofrom : p[0 : n], ran)
    ran = p != NULL ? 3 : 4;
#pragma omp target update to(p[0 : n])
#pragma omp target update from(p[0 : n])
  }
  CHECK(ran == 3);
  struct empty e;
#pragma omp target map(tofrom : e, ran)
  {
    (void)&e;
    ran = 5;
  }
  CHECK(ran == 5);
  void *there = omp_target_alloc(16, 0);
  CHECK(there != NULL);
  CHECK(omp_target_memcpy(there, p, 0, 0, 0, 0, host) == 0);
  CHECK(omp_target_memcpy(p, there, 0, 0, 0, host, 0) == 0);
  CHECK(omp_target_memcpy(there, there, 0, 0, 0, 0, 0) == 0);
  omp_target_free(there, 0);
  CHECK(omp_target_alloc(0, 0) == NULL);
  omp_target_free(NULL, 0);
  free(p);
  return 0;
}
