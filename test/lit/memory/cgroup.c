// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device has no more memory than its cgroup, wherever that is in its hierarchy.
//
// REQUIRES: cgroup
// RUN: %cgroup memory 2048 %device --check | FileCheck %s --check-prefix=NODE
// NODE: cores, 2.0 GiB of memory
// RUN: %clang %s -o %t
// RUN: %cgroup memory 2048 %run1 %t 2> %t.err
// RUN: %line some-error %t.err "device 0" 2684354560

#include "offload.h"

int main(void) {
  need_devices(1);
  CHECK(omp_target_alloc(2560ul << 20, 0) == NULL);
  void *half = omp_target_alloc(1024ul << 20, 0);
  CHECK(half != NULL);
  omp_target_free(half, 0);
  return 0;
}
