// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// saxpy: y = a x + y, the vectors split over all devices.
//
//   clang-16 -O2 -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu saxpy.c -o saxpy
//   llvm-offload-mpirun -n 2 ./saxpy [LENGTH]
//
// The smallest useful program: one loop, one map clause for each vector. Each
// device gets its part by an array section; the regions run at the same time.

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 4000000;
  int devices = omp_get_num_devices();
  if (n < 1 || devices < 1) {
    fprintf(stderr, "usage: saxpy [LENGTH], with a device or more\n");
    return 2;
  }
  float a = 2.5f, *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
  if (!x || !y) {
    fprintf(stderr, "no memory for the vectors\n");
    return 1;
  }
  for (long i = 0; i < n; ++i) {
    x[i] = (float)(i % 1000);
    y[i] = 1;
  }

  double begin = omp_get_wtime();
#pragma omp parallel for num_threads(devices) schedule(static, 1)
  for (int d = 0; d < devices; ++d) {
    long first = n * d / devices, end = n * (d + 1) / devices;
    long length = end - first;
#pragma omp target teams distribute parallel for device(d)                     \
    map(to : x[first : length]) map(tofrom : y[first : length])
    for (long i = first; i < end; ++i)
      y[i] = a * x[i] + y[i];
  }
  double elapsed = omp_get_wtime() - begin;

  long wrong = 0;
  for (long i = 0; i < n; ++i)
    wrong += y[i] != a * (float)(i % 1000) + 1; // exact in float
  printf("saxpy: %ld elements on %d devices, %.3f s\n", n, devices, elapsed);
  printf("result: %s\n", wrong ? "WRONG" : "right");
  free(x);
  free(y);
  return wrong ? 1 : 0;
}
