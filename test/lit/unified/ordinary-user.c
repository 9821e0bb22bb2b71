// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Program and devices of an ordinary user, who may access the memory of either process, of the device only, or of none:
// what can't be copied directly travels in messages.
//
// RUN: %clang -D_GNU_SOURCE %s -o %t
// RUN: %as-user %run2 %t both 2> %t.err
// RUN: %line none %t.err
// RUN: %as-user %run2 %t device 2> %t.err
// RUN: %line none %t.err
// RUN: %as-user %run2 %t none 2> %t.err
// RUN: %line none %t.err
// RUN: %as-user %run2 --rc fail %t conflict 2> %t.err
// RUN: %line error %t.err "device 0" %hostname "from 0x07 to 0x01, but it is 0x02 now"
// REQUIRES: ordinary-user, reach
// UCX, which MPICH uses, copies directly too, and ends the process where that is forbidden.
// UNSUPPORTED: mpich

#include "unified.h"
#include <errno.h>
#include <sys/prctl.h>
#include <sys/uio.h>

enum { N = 3000001 };

/// True if this process may read the memory of another one.
static int reaches(int pid, void *at) {
  char byte;
  struct iovec here = {&byte, 1}, there = {at, 1};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == 1;
}

int main(int argc, char **argv) {
  CHECK(argc == 2 && getuid() != 0);
  int is_conflict = !strcmp(argv[1], "conflict");
  int closes_program = strcmp(argv[1], "both") != 0;
  int closes_device = is_conflict || !strcmp(argv[1], "none");
  if (closes_program)
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
  need_devices(2);
  int program = getpid(), seen = 0, device = 0;
  long at = 0;
#pragma omp target map(from : seen, device, at)
  {
    seen = reaches(program, &seen);
    device = getpid();
    at = (long)malloc(1);
    if (closes_device)
      prctl(PR_SET_DUMPABLE, 0);
  }
  CHECK(seen == !closes_program && reaches(device, (void *)at) == !closes_device);

  unsigned char *p = malloc(N);
  fill(p, N, 0);
  for (int round = 0; round < 4; ++round) {
    size_t wrong = 0;
#pragma omp target map(tofrom : wrong) device(round % 2)
    {
      wrong = differences(p, N, round);
      fill(p, N, round + 1);
    }
    CHECK(wrong == 0 && differences(p, N, round + 1) == 0);
    p[N / 2]++;
#pragma omp target device(round % 2)
    p[N / 2]--;
    CHECK(differences(p, N, round + 1) == 0);
  }
  if (is_conflict) {
    memset(p, 7, N);
    int *stage = llvm_omp_target_alloc_device(sizeof *stage, 0), now = 0, host = omp_get_initial_device();
    CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
#pragma omp target nowait device(0) is_device_ptr(stage) firstprivate(p)
    {
      memset(p, 1, N);
      __atomic_store_n(stage, 1, __ATOMIC_RELEASE);
      while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
        usleep(1000);
    }
    while (now != 1)
      CHECK(omp_target_memcpy(&now, stage, sizeof now, 0, 0, host, 0) == 0);
    p[N - 1] = 2;
    now = 2;
    CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
#pragma omp taskwait
  }
  free(p);
  return 0;
}
