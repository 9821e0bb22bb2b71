// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two ranks with two devices each: four devices, each a process with memory and
// globals of its own, that copy to and from the program and each other, within a
// rank and between ranks, and run regions at the same time.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run2 --no-files %t
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 OMPTARGET_MPI_FRAGMENT_SIZE=64K %run2 %t
//
// The launcher counts devices.
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %bare --rc any %launch --dry-run -n 4 %t | FileCheck %s
// CHECK: -np 3 {{.*}}llvm-offload-mpi-device {{.*}}several.c.tmp{{$}}
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %bare --rc fail %launch --dry-run -n 3 %t 2> %t.err
// RUN: %line error %t.err "3 devices" OMPTARGET_MPI_DEVICES_PER_RANK

#include "offload.h"

enum { Devices = 4, Bytes = 3000001 };

#pragma omp declare target
static int own;
#pragma omp end declare target

int main(void) {
  need_devices(Devices);
  int host = omp_get_initial_device();
  unsigned char *data = malloc(Bytes), *back = malloc(Bytes);
  void *there[Devices];
  for (int d = 0; d < Devices; ++d) {
    fill(data, Bytes, d);
    there[d] = omp_target_alloc(Bytes, d);
    CHECK(there[d] && !omp_target_memcpy(there[d], data, Bytes, 0, 0, d, host));
#pragma omp target device(d)
    own = 100 + omp_get_device_num();
  }
  // Each pair once, in a place of its own in the receiver's memory.
  for (int from = 0; from < Devices; ++from)
    for (int to = 0; to < Devices; ++to) {
      if (from == to)
        continue;
      CHECK(!omp_target_memcpy(there[to], there[from], Bytes, 0, 0, to, from));
      CHECK(!omp_target_memcpy(back, there[to], Bytes, 0, 0, host, to));
      CHECK(differences(back, Bytes, from) == 0);
      fill(data, Bytes, to);
      CHECK(!omp_target_memcpy(there[to], data, Bytes, 0, 0, to, host));
    }
  long sums[Devices][8];
  for (int round = 0; round < 8; ++round)
    for (int d = 0; d < Devices; ++d) {
      long *sum = &sums[d][round];
#pragma omp target map(from : sum[:1]) device(d) nowait
      {
        *sum = 0;
        for (int i = 0; i <= own; ++i)
          *sum += i;
      }
    }
#pragma omp taskwait
  for (int round = 0; round < 8; ++round)
    for (int d = 0; d < Devices; ++d)
      CHECK(sums[d][round] == (100 + d) * (101 + d) / 2);
  for (int d = 0; d < Devices; ++d)
    omp_target_free(there[d], d);
  return 0;
}
