// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// While one kernel takes long, those that follow each other on another queue run on one thread of the device. (A plugin
// that runs kernels on its callers' threads, as LLVM's for processors does, has a team of libomp's for each of them.)
//
// UNSUPPORTED: no-system
// RUN: %clang %s -o %t
// RUN: rm -f %t.begun %t.over
// RUN: %run1 %t %t.begun %t.over

#include "offload.h"
#include <fcntl.h>
#include <sys/syscall.h>

enum { N = 30, PATH = 1000 };

static void await(const char *path) {
  while (access(path, F_OK) != 0)
    usleep(1000);
}

int main(int argc, char **argv) {
  static char begun[PATH], over[PATH];
  int others = 0;
  CHECK(argc == 3);
  need_devices(1);
  snprintf(begun, PATH, "%s", argv[1]);
  snprintf(over, PATH, "%s", argv[2]);
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 0) {
#pragma omp target map(to : begun, over)
    {
      close(open(begun, O_CREAT | O_WRONLY, 0600));
      while (access(over, F_OK) != 0)
        usleep(1000);
    }
  } else {
    long first = 0;
    await(begun);
    for (int i = 0; i < N; ++i) {
      long thread = 0;
#pragma omp target map(from : thread)
      {
        usleep(i % 3 * 1000);
        thread = syscall(SYS_gettid);
      }
      first = first ? first : thread;
      others += thread != first;
    }
    close(open(over, O_CREAT | O_WRONLY, 0600));
  }
  // Few, if the thread has no time to take its role back before the next one comes.
  printf("%d kernels ran on another thread than the first one\n", others);
  CHECK(others < N / 3);
  return 0;
}
