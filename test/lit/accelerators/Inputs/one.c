// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One region.

#include "offload.h"

int main(void) {
  int x = 1;
#pragma omp target map(tofrom : x)
  x += 2;
  CHECK(x == 3);
  return 0;
}
