// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library with a region, in a function of the name NAME of a namespace.

namespace some {
int NAME(int n) {
#pragma omp target map(tofrom : n)
  n += 1;
  return n;
}
} // namespace some

extern "C" int call(int n) { return some::NAME(n); }
