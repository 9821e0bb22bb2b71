// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A driver of CUDA with one accelerator of compute capability 8.0.

int cuInit(unsigned flags) { return flags != 0; }

int cuDeviceGetCount(int *count) {
  *count = 1;
  return 0;
}

int cuDeviceGet(int *device, int number) {
  *device = 7;
  return number != 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 : 0;
  return device != 7;
}
