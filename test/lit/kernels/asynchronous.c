// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With OMPTARGET_MPI_ASYNC=1, a construct whose kernel returns nothing ends before the
// kernel does. What follows sees the kernel's results; a kernel that crashes fails the next
// call; what a kernel prints comes with the next wait, or at the end, however long it takes.
//
// Kernels of accelerators are always waited for.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_ASYNC=1 %run2 %t early %t.flag
// RUN: rm %t.flag
// RUN: env OMPTARGET_MPI_ASYNC=1 %run2 %t order 2> %t.err
// RUN: %line none %t.err
// RUN: %run2 %t order
// RUN: env OMPTARGET_MPI_ASYNC=1 %run2 %t free
// RUN: env OMPTARGET_MPI_ASYNC=1 %run2 --rc fail %t crash-next 2> %t.err
// RUN: %line error %t.err "kernel main, line [0-9]+ failed on device 0 .*SIGSEGV"
// RUN: env OMPTARGET_MPI_ASYNC=1 %run2 --rc fail %t crash-last 2> %t.err
// RUN: %line some-error %t.err "kernel main, line [0-9]+ failed on device 0 .*SIGSEGV"
// RUN: env OMPTARGET_MPI_ASYNC=1 %run2 %t prints > %t.out
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: in the first region
// CHECK-NEXT: after a wait
// CHECK-NEXT: after the last region
// CHECK-NEXT: in the last region

#include "check.h"
#include <fcntl.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 100000, SOME = 100, MORE = 8000 };

#pragma omp declare target
// Maps a file.
static volatile int *map(const char *path) {
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(int)))
    return NULL;
  volatile int *at = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at;
}
#pragma omp end declare target

// The kernel ends only after its construct.
static void end_early(const char *path) {
  size_t n = strlen(path) + 1;
  uintptr_t at = 0;
  volatile int *here = map(path), *there;
#pragma omp target map(to : path[0 : n]) map(from : at) device(0)
  at = (uintptr_t)map(path);
  there = (volatile int *)at;
  CHECK(here && there);
  int *seen = omp_target_alloc(sizeof *seen, 0), value = 0;
#pragma omp target is_device_ptr(seen, there)
  {
    while (*there == 0)
      ;
    *seen = *there;
  }
  *here = 7;
  CHECK(!omp_target_memcpy(&value, seen, sizeof value, 0, 0, omp_get_initial_device(), 0));
  CHECK(value == 7);
  omp_target_free(seen, 0);
}

// Constructs are ordered on each device, whatever they do.
static void keep_order(void) {
  int *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < N; ++i)
      a[i] = i + round, b[i] = 0;
#pragma omp target enter data map(to : a[0 : N], b[0 : N])
    for (int k = 0; k < 10; ++k) {
#pragma omp target teams distribute parallel for map(a[0 : N], b[0 : N])
      for (int i = 0; i < N; ++i)
        b[i] += a[i] + k;
      // A message carries the one, and the program makes the other if it can.
      int changed = k % 2 ? SOME : MORE;
      for (int i = 0; i < changed; ++i)
        a[i] = k;
#pragma omp target update to(a[0 : changed])
    }
    int sum = 0;
#pragma omp target map(tofrom : sum) map(b[0 : N])
    sum += b[N - 1];
    CHECK(sum == 10 * (N - 1 + round) + 45);
#pragma omp target exit data map(from : b[0 : N]) map(delete : a[0 : N])
    for (int i = 0; i < N; ++i)
      CHECK(b[i] == 45 + (i < SOME ? i + round + 36 : i < MORE ? i + round + 32 : 10 * (i + round)));
  }
  free(a);
  free(b);
}

// Memory that a running kernel uses may be freed, and a lot of it.
static void free_used(void) {
  enum { LARGE = 96 << 20 };
  long *sums = omp_target_alloc(8 * sizeof *sums, 0), result[8];
  for (int round = 0; round < 8; ++round) {
    unsigned char *used = omp_target_alloc(LARGE, 0);
#pragma omp target is_device_ptr(used)
    memset(used, 1 + round, LARGE);
#pragma omp target is_device_ptr(used, sums) firstprivate(round)
    {
      long sum = 0;
      for (int i = 0; i < LARGE; ++i)
        sum += used[i];
      sums[round] = sum;
    }
    omp_target_free(used, 0);
  }
  CHECK(!omp_target_memcpy(result, sums, sizeof result, 0, 0, omp_get_initial_device(), 0));
  for (int round = 0; round < 8; ++round)
    CHECK(result[round] == (1 + round) * (long)LARGE);
  omp_target_free(sums, 0);
}

// What kernels print is there after a wait. The end waits for them.
static void print(void) {
  int x = 0;
#pragma omp target
  {
    usleep(100000);
    printf("in the first region\n");
  }
#pragma omp target map(tofrom : x)
  ++x;
  printf("after a wait\n");
  fflush(stdout);
#pragma omp target
  {
    sleep(3);
    printf("in the last region\n");
  }
  printf("after the last region\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  CHECK(argc >= 2 && omp_get_num_devices() >= 1);
  const char *what = argv[1];
  if (!strcmp(what, "early"))
    end_early(argv[2]);
  if (!strcmp(what, "order"))
    keep_order();
  if (!strcmp(what, "free"))
    free_used();
  if (!strncmp(what, "crash", 5)) {
    int *nowhere = NULL, x = 0;
#pragma omp target is_device_ptr(nowhere)
    *nowhere = 1;
    if (!strcmp(what, "crash-next")) {
#pragma omp target map(tofrom : x)
      ++x;
      fprintf(stderr, "omptarget-mpi: error: the next region ran\n");
    }
  }
  if (!strcmp(what, "prints"))
    print();
  return 0;
}
