// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One region, in a program that may require unified_shared_memory.

#ifdef REQUIRE
#pragma omp requires unified_shared_memory
#endif

int main(void) {
  int x = 1;
#pragma omp target map(tofrom : x)
  x++;
  return x != 2;
}
