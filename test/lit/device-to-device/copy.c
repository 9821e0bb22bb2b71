// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies between three devices, every pair and onto the same device, of all
// sizes, at odd offsets; then data that goes round the ring and comes back.
//
// RUN: %clang %s -o %t
// RUN: %run3 %t
// RUN: env OMPTARGET_MPI_FRAGMENT_SIZE=4099 %run3 %t

#include "offload.h"

enum { DEVICES = 3, EDGE = 32, MOST = (2 << 20) + 7 };
static const size_t sizes[] = {1,     7,     4095,  4096,  4097,          32767,
                               32768, 32769, 65536, 65537, (1 << 20) - 1, MOST};
static unsigned char *buffer[DEVICES], *second[DEVICES];

/// Fills the buffer on device d, or counts what is not so and not 0xaa beside.
static void fill_on(int d, size_t n, unsigned seed) {
  unsigned char *p = buffer[d];
#pragma omp target is_device_ptr(p) device(d)
  fill(p, n, seed);
}

static void clear_on(int d, unsigned char *p) {
#pragma omp target is_device_ptr(p) device(d)
  memset(p, 0xaa, MOST + 2 * EDGE);
}

static size_t wrong_on(int d, unsigned char *p, size_t at, size_t n,
                       unsigned seed) {
  size_t wrong = 0;
#pragma omp target is_device_ptr(p) map(tofrom : wrong) device(d)
  {
    wrong = differences(p + at, n, seed);
    for (size_t i = 0; i < EDGE; ++i)
      wrong += (i < at && p[i] != 0xaa) + (p[at + n + i] != 0xaa);
  }
  return wrong;
}

int main(void) {
  unsigned seed = 0;
  need_devices(DEVICES);
  for (int d = 0; d < DEVICES; ++d) {
    buffer[d] = omp_target_alloc(MOST + 2 * EDGE, d);
    second[d] = omp_target_alloc(MOST + 2 * EDGE, d);
    CHECK(buffer[d] && second[d]);
  }
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; ++k)
    for (int from = 0; from < DEVICES; ++from)
      for (int to = 0; to < DEVICES; ++to) {
        size_t n = sizes[k], at = k % 2 ? 11 : 0;
        fill_on(from, n, ++seed);
        clear_on(to, second[to]);
        CHECK(omp_target_memcpy(second[to], buffer[from], n, at, 0, to, from) ==
              0);
        CHECK(wrong_on(to, second[to], at, n, seed) == 0);
      }

  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; ++k) {
    size_t n = sizes[k];
    fill_on(0, n, ++seed);
    clear_on(0, second[0]);
    for (int d = 1; d < DEVICES; ++d)
      CHECK(omp_target_memcpy(buffer[d], buffer[d - 1], n, 0, 0, d, d - 1) ==
            0);
    CHECK(omp_target_memcpy(second[0], buffer[DEVICES - 1], n, 0, 0, 0,
                            DEVICES - 1) == 0);
    CHECK(wrong_on(0, second[0], 0, n, seed) == 0);
  }
  return 0;
}
