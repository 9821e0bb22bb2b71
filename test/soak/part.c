// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library with a region that the soak opens and closes; built under several numbers.

#define JOIN_(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_(a, b, c)

#pragma omp declare target
static int factor = NUMBER + 2;
int JOIN(part, NUMBER, _table)[4] = {NUMBER + 1, 2 * (NUMBER + 1), 3 * (NUMBER + 1), 4 * (NUMBER + 1)};
static long scaled(long x) { return x * factor; }
#pragma omp end declare target

long JOIN(part, NUMBER, _apply)(int device, long x) {
  long result = -1;
#pragma omp target map(from : result) device(device)
  {
    result = scaled(x);
    for (int i = 0; i < 4; ++i)
      result += JOIN(part, NUMBER, _table)[i];
  }
  return result;
}
