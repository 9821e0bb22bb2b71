// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One region stays open while thousands of short ones come and go: the rank keeps nothing of
// those that are answered. With spares it keeps what the limit allows, then says that it can't
// replace the worker before there is a pause, and can again afterwards.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 --no-files %t none 2> %t.err
// RUN: %line none %t.err
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_JOURNAL=1M %run1 --no-files %t after 2> %t.err
// RUN: grep -c "warning: worker 0 of rank 1 .* can't be copied while its regions overlap" %t.err | grep -x 1
// RUN: grep "its spare takes over" %t.err
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_JOURNAL=1M %run1 --rc fail --timeout 60 %t within 2> %t.err
// RUN: grep "error: .*device 0.*its regions have overlapped for so long" %t.err

#include "offload.h"
#include <pthread.h>
#include <signal.h>

enum { Short = 8000, Bytes = 16 << 10, Growth = 48 << 10 };

static int *flag;

/// A region that runs until the flag, which is in device memory, is set.
static void *stay_open(void *_) {
  (void)_;
  int *at = flag;
#pragma omp target is_device_ptr(at)
  while (!__atomic_load_n(at, __ATOMIC_ACQUIRE))
    usleep(1000);
  return NULL;
}

static void set_flag(int value) {
  CHECK(!omp_target_memcpy(flag, &value, sizeof value, 0, 0, 0, omp_get_initial_device()));
}

/// Resident memory of a process, kB.
static long resident(int pid) {
  char path[64], line[256];
  long kb = -1;
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  FILE *file = fopen(path, "r");
  CHECK(file);
  while (fgets(line, sizeof line, file))
    sscanf(line, "VmRSS: %ld", &kb);
  fclose(file);
  CHECK(kb > 0);
  return kb;
}

static void short_regions(int count) {
  static char data[Bytes];
  for (int i = 0; i < count; ++i) {
    data[i % Bytes] = 5;
#pragma omp target map(tofrom : data)
    data[i % Bytes] += 1;
    CHECK(data[i % Bytes] == 6);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int worker = 0, rank = 0, n = 40;
#pragma omp target map(from : worker, rank)
  {
    worker = getpid();
    rank = getppid();
  }
  flag = omp_target_alloc(sizeof *flag, 0);
  CHECK(flag);
  set_flag(0);
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, stay_open, NULL));
  short_regions(Short / 8);
  long before = resident(rank);
  short_regions(Short);
  long after = resident(rank);
  printf("the rank: %ld kB, then %ld kB\n", before, after);
  CHECK(after - before < Growth);
  if (!strcmp(argv[1], "within")) {
    CHECK(!kill(worker, SIGKILL));
    short_regions(1);
    return 0;
  }
  set_flag(1);
  CHECK(!pthread_join(thread, NULL));
  if (!strcmp(argv[1], "after")) {
    // It does not begin before there is a copy of what came before.
#pragma omp target map(tofrom : n)
    ++n;
    CHECK(!kill(worker, SIGKILL));
#pragma omp target map(tofrom : n)
    ++n;
    CHECK(n == 42);
  }
  return 0;
}
