// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// See ../names.c.

#pragma omp declare target
static int addend = ADDEND;
#pragma omp end declare target

int add(int to, int device) {
#pragma omp target map(tofrom : to) device(device)
  to += addend++;
  return to;
}
