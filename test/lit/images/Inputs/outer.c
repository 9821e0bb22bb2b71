// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library with a target region that calls a further user library.

#pragma omp declare target
int twice(int x);
#pragma omp end declare target

int outer(int x) {
#pragma omp target map(tofrom : x)
  x = twice(x) + 1;
  return x;
}
