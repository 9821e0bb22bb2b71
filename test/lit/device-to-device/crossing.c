// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies in all directions between three devices at the same time, by a host
// thread for each pair, small and large: none blocks another, all are right.
//
// RUN: %clang %s -o %t
// RUN: %run3 %t

#include "offload.h"

enum { DEVICES = 3, ROUNDS = 12, LARGE = (4 << 20) + 1 };

/// One pair's own buffers; what arrives is compared on the device.
static size_t pair(int from, int to) {
  size_t wrong = 0;
  unsigned char *source = omp_target_alloc(LARGE, from),
                *target = omp_target_alloc(LARGE, to);
  for (int round = 0; round < ROUNDS; ++round) {
    size_t n = round % 2 ? 1000 + round : LARGE, there = 1;
    unsigned seed = 1000 * round + 10 * from + to;
#pragma omp target is_device_ptr(source) device(from)
    fill(source, n, seed);
    wrong += omp_target_memcpy(target, source, n, 0, 0, to, from) != 0;
#pragma omp target is_device_ptr(target) map(tofrom : there) device(to)
    there = differences(target, n, seed);
    wrong += there;
  }
  omp_target_free(source, from);
  omp_target_free(target, to);
  return wrong;
}

int main(void) {
  size_t wrong = 0;
  need_devices(DEVICES);
#pragma omp parallel for num_threads(DEVICES * DEVICES) schedule(static, 1)    \
    reduction(+ : wrong)
  for (int k = 0; k < DEVICES * DEVICES; ++k)
    wrong += pair(k / DEVICES, k % DEVICES);
  CHECK(wrong == 0);
  return 0;
}
