// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies of all sizes around the limits of messages, pages and pieces arrive
// whole in both directions and touch nothing beside their range; also with
// small and odd pieces.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t
// RUN: env OMPTARGET_MPI_FRAGMENT_SIZE=4099 %run2 %t
// RUN: env OMPTARGET_MPI_FRAGMENT_SIZE=65537 %run2 %t

#include "offload.h"

static const size_t sizes[] = {
    1,     7,     8,     63,    4095,  4096,    4097,          4099,
    8198,  32767, 32768, 32769, 65535, 65536,   65537,         131075,
    (1 << 20) - 1,       1 << 20,      (1 << 20) + 1, (3 << 20) + 5};
enum { EDGE = 64, MOST = (3 << 20) + 5 };

static unsigned char out[MOST + 3 * EDGE], back[MOST + 3 * EDGE];

/// n bytes to device d, at `from` in the host's buffer and `to` in the device's,
/// checked there, changed there, and back.
static void round_trip(size_t n, int d, size_t from, size_t to) {
  int host = omp_get_initial_device();
  unsigned seed = (unsigned)(n + from);
  unsigned char *there = omp_target_alloc(n + 2 * EDGE, d);
  CHECK(there != NULL);
#pragma omp target is_device_ptr(there) device(d)
  memset(there, 0xaa, n + 2 * EDGE);
  fill(out + from, n, seed);
  CHECK(omp_target_memcpy(there, out, n, to, from, d, host) == 0);
  size_t wrong = 0;
#pragma omp target is_device_ptr(there) device(d) map(tofrom : wrong)
  {
    wrong = differences(there + to, n, seed);
    for (size_t i = 0; i < to; ++i)
      wrong += there[i] != 0xaa;
    for (size_t i = to + n; i < n + 2 * EDGE; ++i)
      wrong += there[i] != 0xaa;
    fill(there + to, n, seed + 1);
  }
  CHECK(wrong == 0);
  memset(back, 0x55, sizeof back);
  CHECK(omp_target_memcpy(back, there, n, from, to, host, d) == 0);
  CHECK(differences(back + from, n, seed + 1) == 0);
  for (size_t i = 0; i < EDGE; ++i)
    CHECK(back[from + n + i] == 0x55 && (i >= from || back[i] == 0x55));
  omp_target_free(there, d);
}

int main(void) {
  need_devices(2);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    round_trip(sizes[i], 0, 0, 0);
    round_trip(sizes[i], 1, 13, 5);
  }
  return 0;
}
