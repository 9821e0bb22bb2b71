// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy between devices whose source or target does not exist fails with an
// error line (and others: libomptarget then tries by way of the host), and both
// devices live on.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t 2> %t.err
// RUN: %line some-error %t.err data_submit "device 1" "rank 2" %hostname 0x10
// RUN: %line some-error %t.err data_retrieve "device 0" "rank 1" %hostname 0x10
// RUN: %line some-error %t.err data_exchange "device 0" "rank 1" %hostname 70368744177664
// REQUIRES: plugin

#include "offload.h"

int main(void) {
  need_devices(2);
  void *a = omp_target_alloc(100, 0), *b = omp_target_alloc(100, 1);
  CHECK(omp_target_memcpy((void *)0x10, a, 100, 0, 0, 1, 0) != 0);
  CHECK(omp_target_memcpy(b, (void *)0x10, 100, 0, 0, 1, 0) != 0);
  CHECK(omp_target_memcpy(b, a, (size_t)1 << 46, 0, 0, 1, 0) != 0);
  CHECK(omp_target_memcpy(b, a, 100, 0, 0, 1, 0) == 0);
  need_devices(2);
  return 0;
}
