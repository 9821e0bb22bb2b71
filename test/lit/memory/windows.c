// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads often copy small parts of one large array, while regions of another thread keep
// changing the bytes between them: none of these changes is lost when the device moves
// pages to memory that it shares with the program. There are more parts than fit there.
//
// RUN: %clang %if tiny-limits %{ -DROUNDS=10 %} %if thorough %{ -DROUNDS=100 %} %s -o %t
// RUN: %run2 %t
// REQUIRES: llvm16
// (From LLVM 18 on, threads must not update parts of one mapped array from a device at once: see docs/user/limits.md.)

#include "offload.h"
#include <unistd.h>

#ifndef ROUNDS
#define ROUNDS 40 // a window is made after 32 copies (2 with tiny limits)
#endif
enum { N = 8 << 20, PARTS = 400, PART = N / PARTS, COUNTS = 300 };
enum { PASSES = 20000, COPYING = 2 };

static int a[N], regions, copying;

/// The ints at the beginning of a part that are copied.
static int copied(int part) { return part % 4 < COPYING ? 300 : 3000; }

/// Counts behind these ints in each part until all copies are made.
static void count(void) {
  for (int is_over = 0; !is_over; ++regions) {
#pragma omp target map(to : a)
    for (int pass = 0; pass < PASSES; ++pass)
      for (int part = 0; part < PARTS; ++part)
        ((volatile int *)a)[part * PART + copied(part) + pass % COUNTS]++;
#pragma omp atomic read
    is_over = copying;
    is_over = is_over == 0;
    usleep(500); // pages are moved now
  }
}

/// Copies the beginning of every second part.
static void copy(int t) {
  for (int round = 1; round <= ROUNDS; ++round)
    for (int part = t; part < PARTS; part += COPYING) {
      int at = part * PART, n = copied(part);
      for (int i = 0; i < n; ++i)
        a[at + i] = round * (part + i);
#pragma omp target update to(a[at : n])
      memset(a + at, 0, n * sizeof *a);
#pragma omp target update from(a[at : n])
      for (int i = 0; i < n; ++i)
        CHECK(a[at + i] == round * (part + i));
    }
#pragma omp atomic
  --copying;
}

int main(void) {
  need_devices(2);
  for (int device = 0; device < 2; ++device) {
    omp_set_default_device(device);
    memset(a, 0, sizeof a);
    regions = 0, copying = COPYING;
#pragma omp target enter data map(to : a)
#pragma omp parallel num_threads(COPYING + 1)
    if (omp_get_thread_num() < COPYING)
      copy(omp_get_thread_num());
    else
      count();
#pragma omp target exit data map(from : a)
    for (int part = 0; part < PARTS; ++part) {
      for (int i = 0; i < copied(part); ++i)
        CHECK(a[part * PART + i] == ROUNDS * (part + i));
      for (int i = 0; i < COUNTS; ++i) {
        int counts = regions * (PASSES / COUNTS + (i < PASSES % COUNTS));
        CHECK(a[part * PART + copied(part) + i] == counts);
      }
    }
  }
  return 0;
}
