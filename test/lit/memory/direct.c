// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Within a node the program itself makes copies of some tens of KiB: they complete while the
// devices are stopped, to one, from one, and from one to the other. Behind such copies a
// region sees their bytes.
//
// REQUIRES: plugin, reach
// The program can't access the memory of an accelerator.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: env -u OMPTARGET_MPI_SPARES %run2 %t

#include "offload.h"
#include <signal.h>

enum { SIZE = 26 << 10 };
static int pid[2];

static char state_of(int process) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", process);
  FILE *stat = fopen(path, "r");
  CHECK(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
  fclose(stat);
  return state;
}

/// Stops both devices or lets them go on.
static void signal_both(int which) {
  for (int d = 0; d < 2; ++d) {
    CHECK(kill(pid[d], which) == 0);
    while ((state_of(pid[d]) == 'T') != (which == SIGSTOP))
      usleep(1000);
  }
}

int main(void) {
  need_devices(2);
  int host = omp_get_initial_device();
  static unsigned char out[SIZE], back[SIZE];
  unsigned char *there[2];
  for (int d = 0; d < 2; ++d) {
    int its = 0;
#pragma omp target map(from : its) device(d)
    its = getpid();
    pid[d] = its;
    there[d] = omp_target_alloc(SIZE, d);
    CHECK(there[d]);
    // The first copy to new memory sends the allocation along.
    CHECK(omp_target_memcpy(there[d], out, SIZE, 0, 0, d, host) == 0);
    CHECK(omp_target_memcpy(back, there[d], SIZE, 0, 0, host, d) == 0);
  }

  fill(out, SIZE, 1);
  signal_both(SIGSTOP);
  CHECK(omp_target_memcpy(there[0], out, SIZE, 0, 0, 0, host) == 0);
  CHECK(omp_target_memcpy(there[1], there[0], SIZE, 0, 0, 1, 0) == 0);
  CHECK(omp_target_memcpy(back, there[1], SIZE, 0, 0, host, 1) == 0);
  signal_both(SIGCONT);

  CHECK(differences(back, SIZE, 1) == 0);
  for (int d = 0; d < 2; ++d) {
    unsigned char *bytes = there[d];
    size_t wrong = SIZE;
#pragma omp target is_device_ptr(bytes) map(tofrom : wrong) device(d)
    wrong = differences(bytes, SIZE, 1);
    CHECK(wrong == 0);
    omp_target_free(there[d], d);
  }
  return 0;
}
