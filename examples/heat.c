// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// heat: how heat spreads over a plate, computed by all devices together.
//
//   clang-16 -O2 -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu heat.c -o heat
//   llvm-offload-mpirun -n 2 ./heat [ROWS COLUMNS STEPS]
//
// The plate is a grid whose border has a fixed temperature; in each step every
// other point becomes the mean of its four neighbours. Each device has a band of
// rows, and one row more on either side, the halo: copies of its neighbours'
// border rows, which go from device to device after each step. At the end the
// host computes the same by itself and compares.

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A band of the plate on one device: rows 1..rows are its own, rows 0 and rows+1
// are the halo, or the plate's border where there is no neighbour.
struct band {
  int first, rows;    // which rows of the plate: first .. first+rows-1
  double *now, *next; // two buffers on the device
};

// One step: the new values of rows 1..rows of a band.
#pragma omp declare target
static double mean(const double *p, int columns) {
  return 0.25 * (p[-columns] + p[columns] + p[-1] + p[1]);
}
#pragma omp end declare target

static void step_on_device(struct band *band, int columns, int device) {
  int rows = band->rows;
  double *now = band->now, *next = band->next;
#pragma omp target teams distribute parallel for is_device_ptr(now, next)      \
    device(device)
  for (int i = 1; i <= rows; ++i)
    for (int k = 1; k < columns - 1; ++k)
      next[(size_t)i * columns + k] = mean(now + (size_t)i * columns + k, columns);
  band->now = next;
  band->next = now;
}

static void step_on_host(double **now, double **next, int rows, int columns) {
  for (int i = 1; i < rows - 1; ++i)
    for (int k = 1; k < columns - 1; ++k)
      (*next)[(size_t)i * columns + k] =
          mean(*now + (size_t)i * columns + k, columns);
  double *old = *now;
  *now = *next;
  *next = old;
}

// A cold plate with a hot upper edge and a warm left one.
static double *new_plate(int rows, int columns) {
  double *plate = calloc((size_t)rows * columns, sizeof *plate);
  if (!plate) {
    fprintf(stderr, "no memory for the plate\n");
    exit(1);
  }
  for (int i = 0; i < rows; ++i)
    plate[(size_t)i * columns] = 50;
  for (int k = 0; k < columns; ++k)
    plate[k] = 100;
  return plate;
}

// Ends the program if an OpenMP call failed.
static void expect(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "%s failed\n", what);
    exit(1);
  }
}

// Where a region runs; pid is 0 if it can't ask a system for that, on a GPU.
struct place {
  char host[64], rank[16];
  int pid;
};

static void find(struct place *place) {
#if defined(__NVPTX__) || defined(__AMDGPU__)
  place->pid = 0;
#else
  // Open MPI and MPICH tell each process its rank in a variable of their own.
  const char *value = getenv("OMPI_COMM_WORLD_RANK");
  if (!value)
    value = getenv("PMI_RANK");
  strncpy(place->rank, value ? value : "none", sizeof place->rank - 1);
  gethostname(place->host, sizeof place->host - 1);
  place->pid = getpid();
#endif
}

// Says where the regions of a device run.
static void show(int device, const struct band *band) {
  struct place place = {0};
#pragma omp target map(tofrom : place) device(device)
  find(&place);
  printf("device %d: ", device);
  if (place.pid)
    printf("rank %s, host %s, pid %d", place.rank, place.host, place.pid);
  else
    printf("a GPU");
  printf(", rows %d to %d\n", band->first, band->first + band->rows - 1);
}

int main(int argc, char **argv) {
  int rows = argc > 1 ? atoi(argv[1]) : 1026;
  int columns = argc > 2 ? atoi(argv[2]) : 1026;
  int steps = argc > 3 ? atoi(argv[3]) : 200;
  int devices = omp_get_num_devices(), host = omp_get_initial_device();
  if (devices < 1 || rows < devices + 2 || columns < 3 || steps < 0) {
    fprintf(stderr, "usage: heat [ROWS COLUMNS STEPS], with a device or more "
                    "and at least one inner row for each\n");
    return 2;
  }
  printf("heat: %d x %d points, %d steps, %d devices, host pid %d\n", rows,
         columns, steps, devices, getpid());

  // Share the inner rows out, and send each band there with its halo.
  double *plate = new_plate(rows, columns);
  struct band *bands = calloc(devices, sizeof *bands);
  size_t row = columns * sizeof(double);
  for (int d = 0; d < devices; ++d) {
    struct band *band = &bands[d];
    band->first = 1 + (int)((long)(rows - 2) * d / devices);
    band->rows = 1 + (int)((long)(rows - 2) * (d + 1) / devices) - band->first;
    size_t size = (band->rows + 2) * row, offset = (band->first - 1) * row;
    band->now = omp_target_alloc(size, d);
    band->next = omp_target_alloc(size, d);
    expect(band->now && band->next, "omp_target_alloc");
    expect(!omp_target_memcpy(band->now, plate, size, 0, offset, d, host) &&
               !omp_target_memcpy(band->next, plate, size, 0, offset, d, host),
           "the copy to a device");
    show(d, band);
  }

  double begin = omp_get_wtime();
  for (int step = 0; step < steps; ++step) {
    // All bands at once, each started by a host thread of its own.
#pragma omp parallel for num_threads(devices) schedule(static, 1)
    for (int d = 0; d < devices; ++d)
      step_on_device(&bands[d], columns, d);
    // The border rows of neighbours into each other's halo, device to device.
    for (int d = 0; d + 1 < devices; ++d) {
      struct band *up = &bands[d], *down = &bands[d + 1];
      expect(!omp_target_memcpy(down->now, up->now, row, 0, up->rows * row,
                                d + 1, d) &&
                 !omp_target_memcpy(up->now, down->now, row,
                                    (up->rows + 1) * row, row, d, d + 1),
             "the exchange of halos");
    }
  }
  double elapsed = omp_get_wtime() - begin;

  // Bring the bands home.
  for (int d = 0; d < devices; ++d) {
    struct band *band = &bands[d];
    expect(!omp_target_memcpy(plate, band->now, band->rows * row,
                              band->first * row, row, host, d),
           "the copy from a device");
    omp_target_free(band->now, d);
    omp_target_free(band->next, d);
  }

  // The same on the host: the same operations, so the same bits.
  double *now = new_plate(rows, columns), *next = new_plate(rows, columns);
  begin = omp_get_wtime();
  for (int step = 0; step < steps; ++step)
    step_on_host(&now, &next, rows, columns);
  double alone = omp_get_wtime() - begin;
  int right = memcmp(plate, now, rows * row) == 0;

  printf("time: %.3f s on the devices, %.3f s on one core of the host\n",
         elapsed, alone);
  printf("result: %s\n", right ? "right" : "WRONG");
  free(plate);
  free(bands);
  free(now);
  free(next);
  return right ? 0 : 1;
}
