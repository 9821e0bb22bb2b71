// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bytes that one side alone writes are never lost, also if they share a page, or a word: two devices and a thread of the
// program write different bytes of the same pages at once. Memory that only one side writes is as that side left it.
//
// RUN: %clang %s -lpthread -o %t
// RUN: %run2 %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "unified.h"
#include <pthread.h>

enum { PAGES = 20, N = PAGES * 4096, ROUNDS = 20 };

static unsigned char *shared;
static int stop;

/// Byte i belongs to side `i % 3`, but for every 64th, which nobody writes.
static int owner(int i) { return i % 64 == 63 ? 3 : i % 3; }

static void *program(void *argument) {
  for (unsigned char round = 1; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); ++round)
    for (int i = 0; i < N; ++i)
      if (owner(i) == 2)
        __atomic_store_n(&shared[i], round, __ATOMIC_RELAXED);
  for (int i = 0; i < N; ++i)
    if (owner(i) == 2)
      __atomic_store_n(&shared[i], 222, __ATOMIC_RELAXED);
  return argument;
}

int main(void) {
  need_devices(2);
  shared = malloc(N);
  unsigned char *p = shared;
  memset(p, 77, N);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, program, NULL) == 0);
  for (int round = 1; round <= ROUNDS; ++round) {
    size_t wrong[2] = {0, 0}, *w = wrong;
    for (int device = 0; device < 2; ++device) {
#pragma omp target nowait device(device) firstprivate(round, device, p, w)
      for (int i = 0; i < N; ++i) {
        int mine = i % 64 != 63 && i % 3 == device;
        if (mine) {
          // What this device wrote in the last round is here.
          w[device] += round > 1 && p[i] != round - 1 + 100 * device;
          p[i] = round + 100 * device;
        } else if (i % 64 == 63) {
          w[device] += p[i] != 77;
        }
      }
    }
#pragma omp taskwait
    CHECK(wrong[0] == 0 && wrong[1] == 0);
    for (int i = 0; i < N; ++i) {
      if (owner(i) < 2)
        CHECK(p[i] == round + 100 * owner(i));
      else if (owner(i) == 3)
        CHECK(p[i] == 77);
    }
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  CHECK(pthread_join(thread, NULL) == 0);
  for (int i = 0; i < N; ++i)
    CHECK(owner(i) != 2 || p[i] == 222);
  free(p);

  // Only the program writes, then only a region.
  int *values = calloc(100000, sizeof *values);
  for (int round = 1; round <= 5; ++round) {
    long sum = 0;
    for (int i = 0; i < 100000; ++i)
      values[i] = i * round;
#pragma omp target map(from : sum)
    {
      sum = 0;
      for (int i = 0; i < 100000; ++i)
        sum += values[i];
    }
    CHECK(sum == 99999L * 100000 / 2 * round);
  }
  for (int round = 1; round <= 5; ++round) {
#pragma omp target
    for (int i = 0; i < 100000; ++i)
      values[i] = i + round;
    for (int i = 0; i < 100000; ++i)
      CHECK(values[i] == i + round);
  }
  free(values);
  return 0;
}
