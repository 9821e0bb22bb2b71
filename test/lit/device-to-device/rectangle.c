// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// omp_target_memcpy_rect: a block within a cube goes from the host to a device,
// to another device, and home, each time to another place.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t

#include "offload.h"

enum { X = 5, Y = 7, Z = 9 };
static int out[X][Y][Z], back[X][Y][Z];

int main(void) {
  need_devices(2);
  int host = omp_get_initial_device();
  const size_t volume[3] = {2, 3, 4}, cube[3] = {X, Y, Z};
  const size_t a[3] = {1, 2, 3}, b[3] = {0, 4, 5}, c[3] = {3, 0, 1},
               d[3] = {2, 2, 2};
  for (int x = 0; x < X; ++x)
    for (int y = 0; y < Y; ++y)
      for (int z = 0; z < Z; ++z)
        out[x][y][z] = 10000 + 100 * x + 10 * y + z;
  void *first = omp_target_alloc(sizeof out, 0),
       *second = omp_target_alloc(sizeof out, 1);
  CHECK(omp_target_memcpy_rect(first, out, sizeof(int), 3, volume, b, a, cube,
                               cube, 0, host) == 0);
  CHECK(omp_target_memcpy_rect(second, first, sizeof(int), 3, volume, c, b,
                               cube, cube, 1, 0) == 0);
  CHECK(omp_target_memcpy_rect(back, second, sizeof(int), 3, volume, d, c, cube,
                               cube, host, 1) == 0);
  for (int x = 0; x < X; ++x)
    for (int y = 0; y < Y; ++y)
      for (int z = 0; z < Z; ++z) {
        int inside = x >= 2 && x < 4 && y >= 2 && y < 5 && z >= 2 && z < 6;
        CHECK(back[x][y][z] == (inside ? out[x - 1][y][z + 1] : 0));
      }
  omp_target_free(first, 0);
  omp_target_free(second, 1);
  return 0;
}
