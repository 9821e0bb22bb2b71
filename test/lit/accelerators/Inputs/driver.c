// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A driver of CUDA with STANDIN_GPUS accelerators (by default one) of compute capability 8.0.

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST = 7, MAJOR = 75 };

static int gpus(void) {
  const char *number = getenv("STANDIN_GPUS");
  return number ? atoi(number) : 1;
}

static int is_gpu(int device) { return device >= FIRST && device < FIRST + gpus(); }

int cuInit(unsigned flags) { return flags != 0; }

int cuDriverGetVersion(int *version) {
  *version = 12040;
  return 0;
}

int cuDeviceGetCount(int *count) {
  *count = gpus();
  return 0;
}

int cuDeviceGet(int *device, int number) {
  *device = FIRST + number;
  return !is_gpu(*device);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == MAJOR ? 8 : 0;
  return !is_gpu(device);
}

int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, size, "Stand-in %d", device - FIRST);
  return !is_gpu(device);
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = (size_t)3 << 29;
  return !is_gpu(device);
}
