// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The processes of two devices are killed again and again, whatever they do then: small and
// large copies, between devices too, regions one after the other, regions at the same time.
// Every result is right.
//
// The libomptarget of LLVM 15 loses one of several mappings of one time now and then.
// UNSUPPORTED: llvm14, llvm15
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_SPARES=1000 %run2 --no-files %t 6
// RUN: env OMPTARGET_MPI_SPARES=1000 OMPTARGET_MPI_JOURNAL=64K OMPTARGET_MPI_FRAGMENT_SIZE=64K %run2 %t 6
// RUN: env OMPTARGET_MPI_SPARES=1000 OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 --no-files %t 6

#include "offload.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>

enum { Bytes = 1 << 20, Small = 100, Tasks = 8 };

static volatile int kills;

/// Reads a file of a process.
static size_t read_file(const char *pid, const char *name, char *text,
                        size_t room) {
  char path[300];
  snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
  FILE *file = fopen(path, "r");
  size_t n = file ? fread(text, 1, room - 1, file) : 0;
  if (file)
    fclose(file);
  text[n] = 0;
  return n;
}

/// True for a process of a worker, and for its copy until that has a name of its
/// own.
static int is_worker(const char *pid) {
  char comm[20];
  read_file(pid, "comm", comm, sizeof comm);
  return !strcmp(comm, "omp-worker\n");
}

/// True if the process is the child of a worker, which only copies are.
static int is_copy(const char *pid) {
  char stat[500], parent[20];
  read_file(pid, "stat", stat, sizeof stat);
  int found = sscanf(stat, "%*d (omp-worker) %*c %19s", parent);
  return found == 1 && is_worker(parent);
}

/// Kills the n-th of the working workers of this job. (A region that told its
/// process would give another result each time.)
static int kill_worker(int n) {
  static char text[1 << 20], mark[100];
  snprintf(mark, sizeof mark, "OMPTARGET_TEST_JOB=%s",
           getenv("OMPTARGET_TEST_JOB"));
  int killed = 0;
  DIR *processes = opendir("/proc");
  for (struct dirent *e; !killed && (e = readdir(processes));) {
    if (!is_worker(e->d_name) || is_copy(e->d_name))
      continue;
    size_t len = read_file(e->d_name, "environ", text, sizeof text);
    for (size_t i = 0; i < len; i += strlen(text + i) + 1)
      if (!strcmp(text + i, mark) && n-- == 0)
        killed = !kill(atoi(e->d_name), SIGKILL);
  }
  closedir(processes);
  return killed;
}

static void *killer(void *_) {
  (void)_;
  unsigned seed = 7;
  while (kills > 0) {
    usleep(50000 + rand_r(&seed) % 100000);
    kills -= kill_worker(rand_r(&seed) % 2);
  }
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  CHECK(omp_get_num_devices() == 2);
  int host = omp_get_initial_device();
  unsigned char *data = malloc(Bytes), *back = malloc(Bytes);
  void *there[2] = {omp_target_alloc(Bytes, 0), omp_target_alloc(Bytes, 1)};
  pthread_t thread;
  kills = atoi(argv[1]);
  CHECK(!pthread_create(&thread, NULL, killer, NULL));
  for (unsigned round = 0; kills > 0; ++round) {
    int d = round % 2, e = 1 - d;
    fill(data, Bytes, round);
    CHECK(!omp_target_memcpy(there[d], data, Bytes, 0, 0, d, host));
    CHECK(!omp_target_memcpy(there[e], there[d], Bytes, 0, 0, e, d));
    CHECK(!omp_target_memcpy(back, there[e], Bytes, 0, 0, host, e));
    CHECK(differences(back, Bytes, round) == 0);
    int small[Small];
    for (int i = 0; i < Small; ++i)
      small[i] = i;
    for (int s = 0; s < 20; ++s)
#pragma omp target map(tofrom : small) device(d)
      for (int i = 0; i < Small; ++i)
        small[i] += i;
    for (int i = 0; i < Small; ++i)
      CHECK(small[i] == 21 * i);
    long sums[Tasks];
    for (int t = 0; t < Tasks; ++t) {
      long *sum = &sums[t];
#pragma omp target map(from : sum[:1]) map(to : data[:Bytes]) device(t % 2) nowait
      {
        *sum = 0;
        for (int i = 0; i < Bytes; ++i)
          *sum += data[i];
      }
    }
#pragma omp taskwait
    long want = 0;
    for (int i = 0; i < Bytes; ++i)
      want += data[i];
    for (int t = 0; t < Tasks; ++t)
      CHECK(sums[t] == want);
  }
  pthread_join(thread, NULL);
  return 0;
}
