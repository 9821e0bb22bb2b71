// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Uses all devices and repeats its arguments.

#include "offload.h"

int main(int argc, char **argv) {
  int n = omp_get_num_devices(), sum = 0;
  need_devices(n);
  for (int d = 0; d < n; ++d) {
#pragma omp target map(tofrom : sum) device(d)
    sum += d + 1;
  }
  for (int i = 1; i < argc; ++i)
    printf("argument %s.\n", argv[i]);
  printf("%d devices, sum %d\n", n, sum);
  return 0;
}
