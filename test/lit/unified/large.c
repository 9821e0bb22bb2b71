// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two devices and the program write different bytes of one large array at once, which several threads fetch and merge: all
// writes stay. If both devices write some bytes, far from each other, the later region fails with the one to which they have
// given different values, and all else that it wrote arrives.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t 0 > %t.out 2> %t.err
// RUN: %line none %t.err
// RUN: FileCheck %s --input-file %t.out
// RUN: %run2 --rc fail %t 2 > %t.out 2> %t.err
// RUN: %line error %t.err "kernel .*main.*, line" "device 0" %hostname "0x[0-9a-f]*4600004 from 0x00 to 0x01, but it is 0x02 now"
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// CHECK: 2 devices

#include "unified.h"
#include <signal.h>
#include <sys/mman.h>

enum { N = 80 << 20 };

/// The array, and the byte to which both devices give different values, if there is one.
static unsigned char *array;
static int conflict;

/// Who writes a byte: device 0 or 1, or the program.
static int writer(int i) { return i % 16 < 7 ? 0 : i % 16 < 14 ? 1 : 2; }

static void check(void) {
  for (int i = 0; i < N; ++i)
    CHECK(array[i] == 1 + writer(i) + (conflict && i == conflict));
  printf("%d devices\n", omp_get_num_devices());
  fflush(stdout);
}

static void look(int number) {
  signal(number, SIG_DFL);
  check();
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  signal(SIGABRT, look);
  need_devices(2);
  int conflicts = atoi(argv[1]), both[] = {(20 << 20) - 4092, (70 << 20) + 4};
  conflict = conflicts ? both[1] : 0;
  int *stage = llvm_omp_target_alloc_device(sizeof *stage, 0), now = 0, host = omp_get_initial_device();
  CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
  unsigned char *p = mmap((void *)0x10000000000, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p == (unsigned char *)0x10000000000);
  array = p;
#pragma omp target nowait device(0) is_device_ptr(stage) firstprivate(p)
  {
    for (int i = 0; i < N; ++i)
      if (writer(i) == 0)
        p[i] = 1;
    __atomic_store_n(stage, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(stage, __ATOMIC_ACQUIRE) != 2)
      usleep(1000);
  }
  while (now != 1)
    CHECK(omp_target_memcpy(&now, stage, sizeof now, 0, 0, host, 0) == 0);
#pragma omp target device(1) firstprivate(p, conflicts, both)
  {
    for (int i = 0; i < N; ++i)
      if (writer(i) == 1)
        p[i] = 2;
    for (int n = 0; n < conflicts; ++n)
      p[both[n]] = 1 + n;
  }
  for (int i = 0; i < N; ++i)
    if (writer(i) == 2)
      p[i] = 3;
  now = 2;
  CHECK(omp_target_memcpy(stage, &now, sizeof now, 0, 0, 0, host) == 0);
#pragma omp taskwait
  check();
  omp_target_free(stage, 0);
  return 0;
}
