// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The task graphs of the benchmark, with the patterns of Task Bench (Slaughter et al., SC20), and
// the smallest task that a way to run them still runs efficiently: METG(50%).
//
// A graph has steps, and columns in each. A task computes a number from those of some tasks of the
// step before.

#include <math.h>
#include <stdint.h>

enum { COLUMNS = 8, STEPS = 50, INPUTS = 3, TIMES = 5 };
enum pattern { TRIVIAL, STENCIL, FFT, TREE, RANDOM, PATTERNS };
static const char *const names[] = {"trivial", "stencil", "fft", "tree", "random"};

#ifdef _OPENMP
#pragma omp declare target
#endif
// What a task does: as many dependent multiplications, each some nanoseconds.
static uint64_t work(uint64_t x, uint64_t iterations) {
  for (uint64_t i = 0; i < iterations; ++i)
    x = x * 6364136223846793005u + 1442695040888963407u;
  return x ^ x >> 29;
}
#ifdef _OPENMP
#pragma omp end declare target
#endif

// A task's own part of what it starts with.
static uint64_t seed(int step, int column) { return work((uint64_t)(step * COLUMNS + column), 4); }

static int width(enum pattern pattern, int step) {
  return pattern == TREE && step < 3 ? 1 << step : COLUMNS;
}

// Which tasks of the step before a task needs; returns how many.
static int inputs(enum pattern pattern, int step, int column, int from[INPUTS]) {
  int n = 0;
  if (step == 0 || pattern == TRIVIAL)
    return 0;
  if (pattern == TREE) {
    from[n++] = column / 2;
  } else if (pattern == RANDOM) {
    for (; n < INPUTS; ++n)
      from[n] = (int)(work((uint64_t)((step * COLUMNS + column) * INPUTS + n), 4) % COLUMNS);
  } else {
    int apart = pattern == FFT ? 1 << (step - 1) % 3 : 1;
    for (int at = column - apart; at <= column + apart; at += apart)
      if (at >= 0 && at < COLUMNS)
        from[n++] = at;
  }
  return n;
}

static int count(enum pattern pattern) {
  int tasks = 0;
  for (int step = 0; step < STEPS; ++step)
    tasks += width(pattern, step);
  return tasks;
}

// The last step's numbers, computed one after the other. Returns the seconds that took.
static double alone(enum pattern pattern, uint64_t iterations, uint64_t result[COLUMNS]) {
  uint64_t value[2][COLUMNS];
  double begin = now();
  for (int step = 0; step < STEPS; ++step)
    for (int column = 0; column < width(pattern, step); ++column) {
      int from[INPUTS], n = inputs(pattern, step, column, from);
      uint64_t x = seed(step, column);
      for (int k = 0; k < n; ++k)
        x += value[(step + 1) % 2][from[k]];
      value[step % 2][column] = work(x, iterations);
    }
  double took = now() - begin;
  memcpy(result, value[(STEPS - 1) % 2], sizeof value[0]);
  return took;
}

// Runs a graph; returns the last step's numbers, and the seconds that took.
typedef double run(enum pattern pattern, uint64_t iterations, uint64_t result[COLUMNS]);

// The time of a task times `workers` over the whole, with tasks so long that the workers compute
// during half of the time; infinite if not even the longest ones are long enough.
static double metg(enum pattern pattern, int workers, run *run) {
  double last = 0, before = 0; // time of a task, and efficiency, of the tasks twice as long
  for (uint64_t iterations = 1 << 21; iterations; iterations /= 2) {
    uint64_t right[COLUMNS], result[COLUMNS];
    double before_all = alone(pattern, iterations, right), took[TIMES];
    for (int i = 0; i < TIMES; ++i) {
      took[i] = run(pattern, iterations, result);
      check(!memcmp(right, result, sizeof right), "what the tasks computed");
    }
    double after_all = alone(pattern, iterations, right);
    qsort(took, TIMES, sizeof *took, ascending);
    double task = took[TIMES / 2] * workers / count(pattern);
    double efficiency = (before_all < after_all ? before_all : after_all) / count(pattern) / task;
    if (efficiency < 0.5)
      return before == 0 ? INFINITY : task + (last - task) * (0.5 - efficiency) / (before - efficiency);
    last = task, before = efficiency;
  }
  return last; // the shortest task is long enough
}
