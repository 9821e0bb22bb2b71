// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy to a device returns as soon as the program may reuse its buffer: overwrite it,
// unmap it. Whatever the program does next with that device is ordered behind the copy,
// from any thread, from another device, and in memory that is freed and allocated anew
// while a region runs. On this host, and over a network that is slow.
//
// The devices need an LD_LIBRARY_PATH for Debian's libomptarget 18 to find its plugins, which the launcher does not give them.
// UNSUPPORTED: accelerators && llvm18
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: %run2 %t 60
// RUN: %if thorough %{ %run2 %t 300 %}
// RUN: %if hosts %{ %bare %hosts --delay 2 alpha,beta %launch --hosts beta:2 %t 12 %}

#include "offload.h"
#include <pthread.h>
#include <sys/mman.h>

enum { SIZES = 6 };
static unsigned rounds;
static const size_t sizes[SIZES] = {1, 100, 4096, 16384, 60000, 300000};

static void copy_in(void *there, int device, size_t n, unsigned seed, int unmaps) {
  unsigned char *here = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(here != MAP_FAILED);
  fill(here, n, seed);
  CHECK(!omp_target_memcpy(there, here, n, 0, 0, device, omp_get_initial_device()));
  if (!unmaps)
    memset(here, 0xff, n);
  CHECK(!munmap(here, n));
}

static void check_there(void *there, int device, size_t n, unsigned seed) {
  unsigned char *here = malloc(n);
  CHECK(!omp_target_memcpy(here, there, n, 0, 0, omp_get_initial_device(), device));
  CHECK(!differences(here, n, seed));
  free(here);
}

struct part {
  unsigned char *there;
  size_t n;
  unsigned seed;
};

/// Sees what another thread has copied before.
static void *read_in_region(void *argument) {
  struct part *part = argument;
  unsigned char *there = part->there;
  size_t n = part->n;
  unsigned char first = 0, last = 0;
#pragma omp target is_device_ptr(there) map(from : first, last)
  {
    first = there[0];
    last = there[n - 1];
  }
  CHECK(first == pattern(0, part->seed) && last == pattern(n - 1, part->seed));
  return NULL;
}

static int reused;

/// Frees and allocates the same memory while another thread's region runs.
static void *reuse(void *argument) {
  (void)argument;
  for (unsigned round = 0; round < rounds; ++round) {
    size_t n = sizes[round % 4];
    void *there = omp_target_alloc(n, 0);
    copy_in(there, 0, n, round, 0);
    omp_target_free(there, 0);
    void *again = omp_target_alloc(n, 0);
    copy_in(again, 0, n, round + 1, 1);
    check_there(again, 0, n, round + 1);
    omp_target_free(again, 0);
  }
  __atomic_store_n(&reused, 1, __ATOMIC_RELEASE);
  return NULL;
}

int main(int argc, char **argv) {
  need_devices(2);
  rounds = atoi(argv[argc - 1]);
  size_t most = sizes[SIZES - 1];
  void *a = omp_target_alloc(most, 0), *b = omp_target_alloc(most, 1);
  for (unsigned round = 0; round < rounds; ++round) {
    size_t n = sizes[round % SIZES];
    copy_in(a, 0, n, round, round % 2);
    switch (round / SIZES % 4) {
    case 0:
      check_there(a, 0, n, round);
      break;
    case 1:
      // The second copy wins, from another device.
      copy_in(b, 1, n, round + 7, 1);
      CHECK(!omp_target_memcpy(a, b, n, 0, 0, 0, 1));
      check_there(a, 0, n, round + 7);
      break;
    case 2:
      CHECK(!omp_target_memcpy(b, a, n, 0, 0, 1, 0));
      check_there(b, 1, n, round);
      break;
    default: {
      struct part part = {a, n, round};
      pthread_t thread;
      CHECK(!pthread_create(&thread, NULL, read_in_region, &part));
      CHECK(!pthread_join(thread, NULL));
    }
    }
  }

  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, reuse, NULL));
  while (!__atomic_load_n(&reused, __ATOMIC_ACQUIRE)) {
#pragma omp target
    usleep(5000);
  }
  CHECK(!pthread_join(thread, NULL));
  return 0;
}
