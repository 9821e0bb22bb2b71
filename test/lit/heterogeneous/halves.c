// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One list of devices of two kinds, if that is asked for: MPI devices come first, then LLVM's
// host devices.
// Half of an array is worked on by each kind; copies cross from one kind to the other,
// and every address is of the device that it came from.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_HOST_DEVICES=1 %run2 %t
// RUN: %run2 %t only-mpi
// RUN: %run --no-mpirun %t alone
// REQUIRES: plugins-inside

#include "offload.h"

enum { N = 1 << 20, HOST_DEVICES = 4, MPI_DEVICES = 2 };

/// True if regions for this device run in another process.
static int is_remote(int device) {
  int pid = 0;
#pragma omp target map(from : pid) device(device)
  pid = getpid();
  return pid != getpid();
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "only-mpi") == 0) {
    CHECK(omp_get_num_devices() == MPI_DEVICES);
    CHECK(is_remote(0));
    return 0;
  }
  if (argc > 1) { // without MPI
    CHECK(omp_get_num_devices() == HOST_DEVICES);
    CHECK(!is_remote(0));
    return 0;
  }
  int devices = MPI_DEVICES + HOST_DEVICES;
  CHECK(omp_get_num_devices() == devices);
  for (int d = 0; d < devices; ++d)
    CHECK(is_remote(d) == (d < MPI_DEVICES));

  double *all = malloc(N * sizeof *all);
  for (int i = 0; i < N; ++i)
    all[i] = i;
  int part = N / devices;
  for (int d = 0; d < devices; ++d) {
    double *own = all + d * part;
#pragma omp target teams distribute parallel for map(tofrom : own[0 : part])       \
    device(d) nowait depend(out : own[0])
    for (int i = 0; i < part; ++i)
      own[i] = own[i] * 2 + d;
  }
#pragma omp taskwait
  for (int i = 0; i < part * devices; ++i)
    CHECK(all[i] == i * 2.0 + i / part);

  // A ring through all devices, of either kind, and home again.
  int host = omp_get_initial_device();
  void *at[MPI_DEVICES + HOST_DEVICES];
  for (int d = 0; d < devices; ++d)
    CHECK((at[d] = omp_target_alloc(N * sizeof *all, d)) != NULL);
  CHECK(omp_target_memcpy(at[0], all, N * sizeof *all, 0, 0, 0, host) == 0);
  for (int d = 0; d < devices; ++d) {
    double *here = at[d];
#pragma omp target is_device_ptr(here) device(d)
    for (int i = 0; i < N; ++i)
      here[i] += 1;
    if (d + 1 < devices)
      CHECK(omp_target_memcpy(at[d + 1], here, N * sizeof *all, 0, 0, d + 1, d) == 0);
  }
  double *back = malloc(N * sizeof *back);
  CHECK(omp_target_memcpy(at[0], at[devices - 1], N * sizeof *back, 0, 0, 0, devices - 1) == 0);
  CHECK(omp_target_memcpy(back, at[0], N * sizeof *back, 0, 0, host, 0) == 0);
  for (int i = 0; i < N; ++i)
    CHECK(back[i] == all[i] + devices);
  for (int d = 0; d < devices; ++d)
    omp_target_free(at[d], d);
  free(all);
  free(back);
  return 0;
}
