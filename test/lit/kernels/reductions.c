// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Teams, parallel, simd and their reductions: sums, extremes, logic, arrays and
// a reduction of the program's own.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t

#include "offload.h"

enum { N = 100000 };

#pragma omp declare target
struct range {
  int low, high;
};
#pragma omp end declare target

#pragma omp declare reduction(join : struct range                              \
                              : omp_out.low = omp_in.low < omp_out.low         \
                                                  ? omp_in.low                 \
                                                  : omp_out.low,               \
                                omp_out.high = omp_in.high > omp_out.high      \
                                                   ? omp_in.high               \
                                                   : omp_out.high)             \
    initializer(omp_priv = {1 << 30, -(1 << 30)})

static int a[N];

static void on(int d) {
  long sum = 0, squares = 0, teams = 0;
  int least = 1 << 30, most = -(1 << 30), all = 1, any = 0, bits = 0;
  double real = 0;
#pragma omp target teams distribute parallel for reduction(+ : sum)            \
    map(to : a) device(d)
  for (int i = 0; i < N; ++i)
    sum += a[i];
#pragma omp target parallel for simd reduction(+ : squares, real) map(to : a)  \
    device(d)
  for (int i = 0; i < N; ++i) {
    squares += (long)a[i] * a[i];
    real += 0.5 * a[i];
  }
#pragma omp target teams distribute parallel for simd map(to : a) device(d)    \
    reduction(min : least) reduction(max : most) reduction(&& : all)           \
    reduction(|| : any) reduction(^ : bits)
  for (int i = 0; i < N; ++i) {
    least = a[i] < least ? a[i] : least;
    most = a[i] > most ? a[i] : most;
    all = all && a[i] < N;
    any = any || a[i] == 77;
    bits ^= a[i];
  }
  int expected_bits = 0;
  for (int i = 0; i < N; ++i)
    expected_bits ^= a[i];
  CHECK(sum == (long)N * (N - 1) / 2 && real == 0.5 * sum);
  CHECK(squares == (long)N * (N - 1) / 2 * (2L * N - 1) / 3);
  CHECK(least == 0 && most == N - 1 && all && any && bits == expected_bits);

  long each[8] = {0};
#pragma omp target parallel for reduction(+ : each) map(to : a) device(d)
  for (int i = 0; i < N; ++i)
    each[a[i] % 8] += 1;
  for (int k = 0; k < 8; ++k)
    CHECK(each[k] == N / 8);

  struct range range = {1 << 30, -(1 << 30)};
#pragma omp target parallel for reduction(join : range) map(to : a)            \
    map(tofrom : range) device(d)
  for (int i = 0; i < N; ++i) {
    range.low = a[i] < range.low ? a[i] : range.low;
    range.high = a[i] > range.high ? a[i] : range.high;
  }
  CHECK(range.low == 0 && range.high == N - 1);

  int count = 0;
#pragma omp target teams num_teams(3) thread_limit(2) device(d)                \
    reduction(+ : teams) map(from : count)
  {
    teams += omp_get_team_num() + 1;
    if (omp_get_team_num() == 0)
      count = omp_get_num_teams();
  }
  CHECK(count >= 1 && count <= 3 && teams == count * (count + 1) / 2);
}

int main(void) {
  need_devices(2);
  for (int i = 0; i < N; ++i)
    a[i] = (int)((i * 7919L) % N); // every number below N once
  on(0);
  on(1);
  return 0;
}
