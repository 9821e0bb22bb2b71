// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library of kernels/asynchronous.c, whose own image may use the system.

#include "check.h"
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#pragma omp declare target
static volatile int *map(const char *path) {
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(int)))
    return NULL;
  volatile int *at = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at;
}
#pragma omp end declare target

void share(const char *path, volatile int **here, volatile int **there) {
  size_t n = strlen(path) + 1;
  uintptr_t at = 0;
  *here = map(path);
#pragma omp target map(to : path[0 : n]) map(from : at) device(0)
  at = (uintptr_t)map(path);
  *there = (volatile int *)at;
  CHECK(*here && at);
}
