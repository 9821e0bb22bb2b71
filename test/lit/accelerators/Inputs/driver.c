// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A driver of CUDA with STANDIN_GPUS accelerators (by default one) of compute capability 8.0 and with STANDIN_MEMORY bytes. What
// is free of that is one number for all of them, and follows from the stand-in's STANDIN_COUNTS. With STANDIN_UNUSABLE their
// contexts can't be made current. An empty CUDA_VISIBLE_DEVICES hides all.

#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include "standin.h"

enum { FIRST = 7, MAJOR = 75 };

static int gpus(void) {
  const char *number = getenv("STANDIN_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible && !*visible)
    return 0;
  return number ? atoi(number) : 1;
}

static size_t memory(void) {
  const char *bytes = getenv("STANDIN_MEMORY");
  return bytes ? strtoull(bytes, NULL, 10) : (size_t)3 << 29;
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
  *bytes = memory();
  return !is_gpu(device);
}

// A context is the device's number.
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)(intptr_t)device;
  return !is_gpu(device);
}

int cuDevicePrimaryCtxRelease_v2(int device) { return !is_gpu(device); }

static _Thread_local void *current;

int cuCtxPushCurrent_v2(void *context) {
  current = context;
  return 0;
}

int cuCtxPopCurrent_v2(void **context) {
  *context = current;
  current = NULL;
  return 0;
}

int cuCtxSetCurrent(void *context) {
  if (getenv("STANDIN_UNUSABLE"))
    return 201;
  current = context;
  return 0;
}

int cuCtxGetCurrent(void **context) {
  *context = current;
  return 0;
}

int cuMemGetInfo_v2(size_t *available, size_t *all) {
  const char *path = getenv("STANDIN_COUNTS");
  FILE *file = path ? fopen(path, "r") : NULL;
  uint64_t counts[COUNTS] = {0};
  size_t n = file ? fread(counts, sizeof *counts, COUNTS, file) : 0;
  (void)n;
  if (file)
    fclose(file);
  *all = memory();
  *available = *all - counts[USED];
  return !current;
}
