// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Task graphs over devices: `target nowait depend`, and tasks that copy data from device to device.
// Prints "pattern<TAB>seconds": METG(50%), see graph.h.
//
//   tasks here|elsewhere DEVICES WORKERS
//
// here, elsewhere: see place.h. WORKERS is how many tasks can run at once.

#include "place.h"
#include "sample.h"
#include "graph.h"
#include <omp.h>

static int devices;

// On the devices: each task's number, and copies of those that come from other devices. A step
// uses what the step before the last one did.
static uint64_t *value[2][COLUMNS], *copy[2][COLUMNS][INPUTS];
// What dependences are about.
static char written[2][COLUMNS], copied[2][COLUMNS][INPUTS], nothing;

static int owner(int column) { return column * devices / COLUMNS; }

static void copy_to(int device, uint64_t *to, uint64_t *from, int other) {
  check(!omp_target_memcpy(to, from, sizeof *to, 0, 0, device, other), "omp_target_memcpy");
}

static void submit(enum pattern pattern, int step, int column, uint64_t iterations) {
  int at = step % 2, last = 1 - at, here = owner(column);
  int from[INPUTS], n = inputs(pattern, step, column, from);
  uint64_t *in[INPUTS] = {NULL}, *out = value[at][column], x = seed(step, column);
  char *ready[INPUTS] = {&nothing, &nothing, &nothing};
  for (int k = 0; k < n; ++k) {
    int there = owner(from[k]);
    uint64_t *original = value[last][from[k]], *copied_to = copy[at][column][k];
    in[k] = there == here ? original : copied_to;
    ready[k] = there == here ? &written[last][from[k]] : &copied[at][column][k];
    if (there != here) {
#pragma omp task depend(in : written[last][from[k]]) depend(out : *ready[k])
      copy_to(here, copied_to, original, there);
    }
  }
  uint64_t *a = in[0], *b = in[1], *c = in[2];
#pragma omp target nowait device(here) is_device_ptr(a, b, c, out) firstprivate(x, iterations)                         \
    depend(in : *ready[0], *ready[1], *ready[2]) depend(out : written[at][column])
  *out = work(x + (a ? *a : 0) + (b ? *b : 0) + (c ? *c : 0), iterations);
}

static double run_tasks(enum pattern pattern, uint64_t iterations, uint64_t result[COLUMNS]) {
  double begin = now();
#pragma omp parallel
#pragma omp single
  for (int step = 0; step < STEPS; ++step)
    for (int column = 0; column < width(pattern, step); ++column)
      submit(pattern, step, column, iterations);
  double took = now() - begin;
  for (int column = 0; column < COLUMNS; ++column)
    copy_to(omp_get_initial_device(), &result[column], value[(STEPS - 1) % 2][column], owner(column));
  return took;
}

static uint64_t *number_on(int device) {
  uint64_t *number = omp_target_alloc(sizeof *number, device);
  check(number != NULL, "omp_target_alloc");
  return number;
}

int main(int argc, char **argv) {
  check(argc == 4, "usage: tasks here|elsewhere DEVICES WORKERS");
  devices = atoi(argv[2]);
  check(devices > 0 && devices <= omp_get_num_devices(), "number of devices");
  for (int d = 0; d < devices; ++d)
    check_place(d, argv[1]);
  for (int at = 0; at < 2; ++at)
    for (int column = 0; column < COLUMNS; ++column) {
      value[at][column] = number_on(owner(column));
      for (int k = 0; k < INPUTS; ++k)
        copy[at][column][k] = number_on(owner(column));
    }
  for (enum pattern pattern = 0; pattern < PATTERNS; ++pattern)
    printf("%s\t%.9f\n", names[pattern], metg(pattern, atoi(argv[3]), run_tasks));
  return 0;
}
