// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the program has something at the addresses that the accelerator offers first, the device knows that before it
// allocates, and allocates once.
//
// REQUIRES: llvm16
// RUN: %clang -I%standin-include %s -o %t
// RUN: %make-standin
// RUN: rm -f %t.counts
// RUN: %standin STANDIN_COUNTS=%t.counts OMPTARGET_MPI_MEMORY=600M %run1 %t %t.counts

#define _GNU_SOURCE
#include "offload.h"
#include "standin.h"
#include <fcntl.h>
#include <sys/mman.h>

static char *const FIRST = (char *)0x200000000000;

static void take(void) {
  if (mmap(FIRST, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != FIRST)
    abort();
}

// Before the compiler's constructor, which registers the image: devices start then.
__attribute__((section(".preinit_array"), used)) static void (*const before)(void) = take;

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(1);
#pragma omp target
  {}
  char *there = omp_target_alloc(1, 0);
  CHECK(there && !(FIRST <= there && there < FIRST + (600l << 20)));
  volatile uint64_t *counts =
      mmap(NULL, COUNTS * sizeof(uint64_t), PROT_READ, MAP_SHARED, open(argv[1], O_RDONLY), 0);
  CHECK(counts != MAP_FAILED && counts[ALLOC] == 1);
  return 0;
}
