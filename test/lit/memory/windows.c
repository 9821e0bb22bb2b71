// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads often copy small parts of one large array, while regions of another thread keep
// changing the bytes between them: none of these changes is lost when the device moves
// pages to memory that it shares with the program. There are more parts than fit there.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t

#include "offload.h"

enum { N = 8 << 20, PARTS = 400, PART = N / PARTS, HALF = 300, ROUNDS = 100 };
enum { PASSES = 20000, COPYING = 2 };

static int a[N], regions, copying;

/// Counts in the second half of each part until all copies are made.
static void count(void) {
  for (int is_over = 0; !is_over; ++regions) {
#pragma omp target map(to : a)
    for (int pass = 0; pass < PASSES; ++pass)
      for (int part = 0; part < PARTS; ++part)
        ((volatile int *)a)[part * PART + HALF + pass % HALF]++;
#pragma omp atomic read
    is_over = copying;
    is_over = is_over == 0;
  }
}

/// Copies the first half of every second part.
static void copy(int t) {
  for (int round = 1; round <= ROUNDS; ++round)
    for (int part = t; part < PARTS; part += COPYING) {
      int at = part * PART;
      for (int i = 0; i < HALF; ++i)
        a[at + i] = round * (part + i);
#pragma omp target update to(a[at : HALF])
      memset(a + at, 0, HALF * sizeof *a);
#pragma omp target update from(a[at : HALF])
      for (int i = 0; i < HALF; ++i)
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
    for (int part = 0; part < PARTS; ++part)
      for (int i = 0; i < HALF; ++i) {
        CHECK(a[part * PART + i] == ROUNDS * (part + i));
        int counts = regions * (PASSES / HALF + (i < PASSES % HALF));
        CHECK(a[part * PART + HALF + i] == counts);
      }
  }
  return 0;
}
