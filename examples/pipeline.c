// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// pipeline: items that pass through a stage on every device in turn, many under
// way at the same time.
//
//   clang-16 -O2 -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu pipeline.c -o pipeline
//   llvm-offload-mpirun -n 3 ./pipeline [ITEMS]
//
// Every stage of every item is a deferred region (nowait). Two dependences order
// them: a stage of an item comes after the item's stage before, and a device
// takes items in turn. All else is free to overlap: while device 1 works on the
// first item, device 0 is at the second.

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 10000 };

// What a stage does to one element. Not commutative: a stage left out, done
// twice or done in the wrong order shows.
#pragma omp declare target
static unsigned work(unsigned value, int stage) {
  return (value ^ (stage + 1)) * 2654435761u + stage;
}

// How many items this device has seen: each device has a counter of its own.
static int seen;
#pragma omp end declare target

int main(int argc, char **argv) {
  int items = argc > 1 ? atoi(argv[1]) : 24;
  int stages = omp_get_num_devices();
  if (items < 1 || stages < 1) {
    fprintf(stderr, "usage: pipeline [ITEMS], with a device or more\n");
    return 2;
  }
  unsigned(*item)[LENGTH] = malloc(items * sizeof *item);
  int *order = calloc((size_t)items * stages, sizeof *order);
  char *turn = calloc(stages, 1); // stands for a device in dependences
  if (!item || !order || !turn) {
    fprintf(stderr, "no memory for the items\n");
    return 1;
  }
  for (int i = 0; i < items; ++i)
    for (int k = 0; k < LENGTH; ++k)
      item[i][k] = i * 1000u + k;

  double begin = omp_get_wtime();
#pragma omp parallel
#pragma omp single
  for (int i = 0; i < items; ++i)
    for (int s = 0; s < stages; ++s) {
      int *place = &order[i * stages + s];
#pragma omp target nowait device(s) map(tofrom : item[i][0 : LENGTH])          \
    map(from : place[0 : 1]) depend(inout : item[i][0]) depend(inout : turn[s])
      {
        for (int k = 0; k < LENGTH; ++k)
          item[i][k] = work(item[i][k], s);
        *place = seen++;
      }
    }
  // The end of the parallel region waits for all of them.
  double elapsed = omp_get_wtime() - begin;

  long wrong = 0;
  for (int i = 0; i < items; ++i) {
    for (int s = 0; s < stages; ++s)
      wrong += order[i * stages + s] != i; // each device took them in turn
    for (int k = 0; k < LENGTH; ++k) {
      unsigned expected = i * 1000u + k;
      for (int s = 0; s < stages; ++s)
        expected = work(expected, s);
      wrong += item[i][k] != expected;
    }
  }
  printf("pipeline: %d items through %d stages, one on each device, %.3f s\n",
         items, stages, elapsed);
  printf("result: %s\n", wrong ? "WRONG" : "right");
  free(item);
  free(order);
  free(turn);
  return wrong ? 1 : 0;
}
