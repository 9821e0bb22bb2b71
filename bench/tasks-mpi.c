// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The task graphs of tasks.c in plain MPI: each rank runs its columns, step by step. Prints
// "pattern<TAB>seconds": METG(50%), see graph.h.
//
//   tasks-mpi WORKERS

#include "sample.h"
#include <string.h>
#include "graph.h"
#include <mpi.h>

static int rank, ranks;

static int owner(int column) { return column * ranks / COLUMNS; }

static void run_columns(enum pattern pattern, uint64_t iterations, uint64_t result[COLUMNS]) {
  uint64_t value[2][COLUMNS], copy[COLUMNS][INPUTS];
  for (int step = 0; step < STEPS; ++step) {
    uint64_t *last = value[(step + 1) % 2];
    MPI_Request requests[COLUMNS * INPUTS];
    int open = 0, from[COLUMNS][INPUTS], n[COLUMNS];
    for (int column = 0; column < width(pattern, step); ++column) {
      n[column] = inputs(pattern, step, column, from[column]);
      for (int k = 0; k < n[column]; ++k) {
        int to = owner(column), source = owner(from[column][k]), tag = column * INPUTS + k;
        if (to == rank && source != rank)
          MPI_Irecv(&copy[column][k], 1, MPI_UINT64_T, source, tag, MPI_COMM_WORLD, &requests[open++]);
        if (to != rank && source == rank)
          MPI_Isend(&last[from[column][k]], 1, MPI_UINT64_T, to, tag, MPI_COMM_WORLD, &requests[open++]);
      }
    }
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
    for (int column = 0; column < width(pattern, step); ++column) {
      if (owner(column) != rank)
        continue;
      uint64_t x = seed(step, column);
      for (int k = 0; k < n[column]; ++k)
        x += owner(from[column][k]) == rank ? last[from[column][k]] : copy[column][k];
      value[step % 2][column] = work(x, iterations);
    }
  }
  memcpy(result, value[(STEPS - 1) % 2], COLUMNS * sizeof *result);
}

static double run_together(enum pattern pattern, uint64_t iterations, uint64_t result[COLUMNS]) {
  MPI_Barrier(MPI_COMM_WORLD);
  double begin = now();
  run_columns(pattern, iterations, result);
  MPI_Barrier(MPI_COMM_WORLD);
  double took = now() - begin;
  for (int column = 0; column < COLUMNS; ++column)
    MPI_Bcast(&result[column], 1, MPI_UINT64_T, owner(column), MPI_COMM_WORLD);
  return took;
}

// Broadcasts the graph that all ranks run next. Zero iterations end the program.
static void broadcast(uint64_t graph[2]) { MPI_Bcast(graph, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD); }

static double run_graph(enum pattern pattern, uint64_t iterations, uint64_t result[COLUMNS]) {
  broadcast((uint64_t[]){pattern, iterations});
  return run_together(pattern, iterations, result);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  check(argc == 2 && ranks <= COLUMNS, "usage: tasks-mpi WORKERS, with 1 to 8 ranks");
  uint64_t graph[2] = {0}, result[COLUMNS];
  if (rank == 0) {
    for (enum pattern pattern = 0; pattern < PATTERNS; ++pattern)
      printf("%s\t%.9f\n", names[pattern], metg(pattern, atoi(argv[1]), run_graph));
    broadcast(graph);
  } else {
    for (broadcast(graph); graph[1]; broadcast(graph))
      run_together((enum pattern)graph[0], graph[1], result);
  }
  MPI_Finalize();
  return 0;
}
