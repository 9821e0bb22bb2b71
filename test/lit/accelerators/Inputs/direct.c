// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Large copies each way, between two devices, around kernels and of a global: contents are right and, given the file of the
// stand-in's counts, MPI accesses the memory of this many devices (0 to 2) itself.

#include "offload.h"
#include "standin.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { N = 3000001, BYTES = N * sizeof(int), DEVICES = 2 };

#pragma omp declare target
int global[N];
#pragma omp end declare target

static volatile uint64_t *counts;

/// Bytes that MPI has sent from the accelerators' memory and received there since the last call.
static void moved(uint64_t by[2]) {
  static uint64_t before[2];
  uint64_t now[2] = {counts[SENT], counts[RECEIVED]};
  for (int i = 0; i < 2; ++i) {
    by[i] = now[i] - before[i];
    before[i] = now[i];
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  need_devices(DEVICES);
  uint64_t direct = atoi(argv[2]), by[2];
  int here = omp_get_initial_device(), wrong = 0;
  int *a = malloc(BYTES), *b = calloc(N, sizeof *b), *there[DEVICES];
  for (int d = 0; d < DEVICES; ++d)
    CHECK(there[d] = omp_target_alloc(BYTES, d));
  counts = mmap(NULL, COUNTS * sizeof(uint64_t), PROT_READ, MAP_SHARED, open(argv[1], O_RDONLY), 0);
  CHECK(counts != MAP_FAILED);
  moved(by);

  for (int d = 0; d < DEVICES; ++d) {
    for (int i = 0; i < N; ++i)
      a[i] = (d + 1) * i;
    CHECK(!omp_target_memcpy(there[d], a, BYTES, 0, 0, d, here));
    CHECK(!omp_target_memcpy(b, there[d], BYTES, 0, 0, here, d));
    for (int i = 0; i < N; ++i)
      wrong += b[i] != (d + 1) * i;
  }
  CHECK(wrong == 0);
  moved(by);
  CHECK(by[0] == direct * BYTES && by[1] == direct * BYTES);

  CHECK(!omp_target_memcpy(there[0], there[1], BYTES, 0, 0, 0, 1));
  moved(by);
  CHECK(by[0] + by[1] == direct * BYTES);
  CHECK(!omp_target_memcpy(there[1], there[0], BYTES - 4, 4, 0, 1, 0));
  moved(by);
  CHECK(by[0] + by[1] == direct * (BYTES - 4));
  CHECK(!omp_target_memcpy(b, there[1], BYTES, 0, 0, here, 1));
  for (int i = 0; i < N; ++i)
    wrong += b[i] != (i ? 2 * (i - 1) : 0);
  CHECK(wrong == 0);

  // A kernel's data has arrived, and what it has written leaves.
  moved(by);
  // If there is one such device, it is the first.
  const uint64_t rounds[] = {0, 2, 3};
  for (int round = 0; round < 3; ++round) {
#pragma omp target teams distribute parallel for map(tofrom : a[0 : N]) device(round % DEVICES)
    for (int i = 0; i < N; ++i)
      a[i] += round;
  }
  for (int i = 0; i < N; ++i)
    wrong += a[i] != DEVICES * i + 3;
  CHECK(wrong == 0);
  moved(by);
  CHECK(by[0] == rounds[direct] * BYTES && by[1] == by[0]);

  // A global is no part of the memory that MPI accesses.
  for (int i = 0; i < N; ++i)
    global[i] = i;
#pragma omp target update to(global) device(1)
#pragma omp target teams distribute parallel for device(1)
  for (int i = 0; i < N; ++i)
    global[i] *= 3;
#pragma omp target update from(global) device(1)
  for (int i = 0; i < N; ++i)
    wrong += global[i] != 3 * i;
  CHECK(wrong == 0);
  moved(by);
  CHECK(by[0] == 0 && by[1] == 0);
  return 0;
}
