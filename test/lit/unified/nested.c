// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Structures in structures, whose parts lie all over 1 GiB: a region follows the pointers, changes what it finds, and
// sees what the program has changed since.
//
// RUN: %clang -D_GNU_SOURCE %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <sys/mman.h>

enum { GROUPS = 64, BLOCKS = 64, VALUES = 10 };

struct block {
  int n;
  int *values;
};

struct group {
  struct block *blocks[BLOCKS];
  struct group *next;
};

struct world {
  struct group *first;
  char name[20];
};

static char *memory;

/// The next piece, 128 KiB from all others, in no order.
static void *place(void) {
  static size_t n;
  const size_t step = 128 << 10, steps = ((size_t)1 << 30) / step;
  return memory + n++ * 5209 % steps * step;
}

/// Adds 1 to all values; returns the sum of what they were.
static long add(struct world *world) {
  long sum = 0;
#pragma omp target map(from : sum)
  {
    sum = 0;
    for (struct group *g = world->first; g; g = g->next)
      for (int i = 0; i < BLOCKS; ++i)
        for (int j = 0; j < g->blocks[i]->n; ++j)
          sum += g->blocks[i]->values[j]++;
    strcpy(world->name, "changed");
  }
  return sum;
}

int main(void) {
  need_devices(1);
  memory = mmap(NULL, (size_t)1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED);
  struct world *world = place();
  for (int i = 0; i < GROUPS; ++i) {
    struct group *group = place();
    for (int j = 0; j < BLOCKS; ++j) {
      // A block, and its values at the end of the same piece of memory or in another one.
      struct block *block = group->blocks[j] = place();
      block->n = VALUES;
      block->values = j % 2 ? (int *)((char *)block + (64 << 10)) : (int *)(block + 1);
      for (int k = 0; k < VALUES; ++k)
        block->values[k] = i + j + k;
    }
    group->next = world->first;
    world->first = group;
  }
  const long count = GROUPS * BLOCKS * VALUES;
  long wanted = 0;
  for (int i = 0; i < GROUPS; ++i)
    for (int j = 0; j < BLOCKS; ++j)
      for (int k = 0; k < VALUES; ++k)
        wanted += i + j + k;
  CHECK(add(world) == wanted);
  CHECK(strcmp(world->name, "changed") == 0);
  // The program takes out a group, and moves a block.
  struct group *gone = world->first;
  for (int j = 0; j < BLOCKS; ++j)
    for (int k = 0; k < VALUES; ++k)
      gone->blocks[j]->values[k] = 1 << 30;
  world->first = gone->next;
  struct block *moved = malloc(sizeof *moved), **at = &world->first->blocks[7];
  *moved = **at;
  (*at)->n = 1000;
  *at = moved;
  long left = 0;
  for (int i = 0; i < GROUPS - 1; ++i)
    for (int j = 0; j < BLOCKS; ++j)
      for (int k = 0; k < VALUES; ++k)
        left += i + j + k;
  CHECK(add(world) == left + count - BLOCKS * VALUES);
  free(moved);
  CHECK(munmap(memory, (size_t)1 << 30) == 0);
  return 0;
}
