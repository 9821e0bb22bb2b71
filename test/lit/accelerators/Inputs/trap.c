// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel that traps.

#include "offload.h"

int main(void) {
  int x = 1;
#pragma omp target map(tofrom : x)
  if (x == 1)
    __builtin_trap();
  return 0;
}
