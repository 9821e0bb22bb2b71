// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An image without OpenMP: functions that take pointer-sized arguments, as kernels do.

#include <stdint.h>
#include <unistd.h>

void add(int64_t *value, int64_t n) { *value += n; }

void slow(int64_t *value) {
  usleep(300000);
  *value += 1000;
}

void crash(int64_t *value) { *(volatile int64_t *)(*value & 0) = 1; }
