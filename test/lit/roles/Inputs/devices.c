// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints how many devices it has and the process of each.

#include "offload.h"

int main(void) {
  int n = omp_get_num_devices();
  need_devices(n);
  char text[1000];
  int len = snprintf(text, sizeof text, "%d devices\n", n);
  for (int d = 0; d < n; ++d) {
    int pid = 0;
#pragma omp target map(from : pid) device(d)
    pid = getpid();
    len += snprintf(text + len, sizeof text - len, "pid %d\n", pid);
  }
  // At once: the lines of two programs must not mix.
  return write(1, text, len) != len;
}
