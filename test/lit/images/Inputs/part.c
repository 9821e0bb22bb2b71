// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library with a target region and a declare target global of its own; built
// several times under different NAMEs, with a different STEP each.

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#pragma omp declare target
int JOIN(NAME, _counter) = 100 * STEP;
static int hidden = STEP;
static int step(void) { return hidden; }
#pragma omp end declare target

/// Adds STEP to the counter on device d; the counter's new value.
int JOIN(NAME, _count)(int d) {
  int value = -1;
#pragma omp target map(from : value) device(d)
  {
    JOIN(NAME, _counter) += step();
    value = JOIN(NAME, _counter);
  }
  return value;
}
