// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the test programs share: a check that ends the program (check.h), and the proof
// that regions run in device processes. Without that proof a test says nothing:
// where the plugin finds no device, libomptarget silently turns to the stock
// host plugin and its four make-believe devices.
//
// Include it in one source file of a program only: it has a target region.

#ifndef OFFLOAD_H
#define OFFLOAD_H

#include "check.h"
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/// Ends the program unless there are exactly n devices, each a process of its
/// own and none of them this one. (A region on a GPU can't tell its process.)
static inline void need_devices(int n) {
  int pid[16];
  if (omp_get_num_devices() < n || n > 16) {
    fprintf(stderr, "%d devices instead of %d\n", omp_get_num_devices(), n);
    exit(90);
  }
  for (int d = 0; d < n; ++d) {
    int there = 0;
#pragma omp target map(from : there) device(d)
#ifdef GPU
    there = -1 - d;
#else
    there = getpid();
#endif
    pid[d] = there;
  }
#ifndef STOCK
  if (omp_get_num_devices() != n) {
    fprintf(stderr, "%d devices instead of %d\n", omp_get_num_devices(), n);
    exit(91);
  }
  for (int d = 0; d < n; ++d) {
    int wrong = pid[d] == getpid();
    for (int e = 0; e < d; ++e)
      wrong |= pid[d] == pid[e];
    if (wrong) {
      fprintf(stderr, "device %d is not a process of its own\n", d);
      exit(92);
    }
  }
#else
  (void)pid;
#endif
}

/// The byte at position i of test data number `seed`: no period that a piece,
/// a page or a swapped pair of pieces could hide behind.
static inline unsigned char pattern(size_t i, unsigned seed) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
  return (unsigned char)((x ^ (x >> 29)) >> 32);
}

/// Fills n bytes with the pattern.
static inline void fill(unsigned char *p, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; ++i)
    p[i] = pattern(i, seed);
}

/// The number of bytes that are not the pattern's.
static inline size_t differences(const unsigned char *p, size_t n,
                                 unsigned seed) {
  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i)
    wrong += p[i] != pattern(i, seed);
  return wrong;
}

#endif
