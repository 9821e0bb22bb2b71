// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a device does not have cannot be allocated: NULL and one error line, and
// the device goes on. What is freed can be had again.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_MEMORY=64M %run2 %t 2> %t.err
// LLVM 19 asks twice: the second time without what it kept for later.
// RUN: %line some-error %t.err "device 1" "rank 2" %hostname 134217728
// REQUIRES: plugin

#include "offload.h"

int main(void) {
  need_devices(2);
  CHECK(omp_target_alloc(128 << 20, 1) == NULL);
  for (int i = 0; i < 20; ++i) {
    void *most = omp_target_alloc(40 << 20, 1);
    CHECK(most != NULL);
    omp_target_free(most, 1);
  }
  unsigned char here[1000], *there = omp_target_alloc(sizeof here, 1);
  CHECK(there != NULL);
#pragma omp target is_device_ptr(there) device(1)
  fill(there, 1000, 1);
  CHECK(omp_target_memcpy(here, there, 1000, 0, 0, omp_get_initial_device(),
                          1) == 0);
  CHECK(differences(here, 1000, 1) == 0);
  omp_target_free(there, 1);
  return 0;
}
