// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device's libomp has no file in /dev/shm while it runs, so that none is left when device and
// supervisor, or rank and worker, are killed together.
//
// Worker processes can't have accelerators.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %run1 --rc fail --timeout 60 --no-files %t 2> %t.err
// RUN: FileCheck %s < %t.err
// RUN: env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 --rc fail --timeout 60 --no-files %t 2> %t.err
// RUN: FileCheck %s < %t.err
// CHECK: 3 threads, no file
// CHECK-NOT: after

#include "offload.h"
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

/// True if libomp has a file that is named after a process, and not one left of a process that had
/// this number before `since`.
static int has_file(int pid, time_t since) {
  char name[64];
  int len = snprintf(name, sizeof name, "__KMP_REGISTERED_LIB_%d_", pid), found = 0;
  DIR *folder = opendir("/dev/shm");
  CHECK(folder);
  for (struct dirent *entry; (entry = readdir(folder));) {
    struct stat file;
    found |= !strncmp(entry->d_name, name, len) && !fstatat(dirfd(folder), entry->d_name, &file, 0) &&
             file.st_mtime >= since;
  }
  closedir(folder);
  return found;
}

int main(void) {
  time_t start = time(NULL);
  need_devices(omp_get_num_devices());
  int threads = 0, pid = 0, parent = 0;
#pragma omp target map(tofrom : threads, pid, parent)
  {
    pid = getpid();
    parent = getppid();
#pragma omp parallel num_threads(3) reduction(+ : threads)
    threads++;
  }
  // The program's own is there: one looks for the right names.
#pragma omp parallel num_threads(2)
  {}
  CHECK(threads == 3);
  CHECK(has_file(getpid(), 0));
  CHECK(!has_file(pid, start));
  fprintf(stderr, "%d threads, no file\n", threads);
  CHECK(!kill(parent, SIGSTOP) && !kill(pid, SIGKILL) && !kill(parent, SIGKILL));
  for (;;) {
#pragma omp target
    {}
    usleep(1000);
  }
}
