// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With OMPTARGET_MPI_USM_CHANGES=scan memory that has not changed is not fetched again, and what has changed is: by stores,
// system calls, another thread, another device, a new mapping, or none. If the program opens a file whose reads leave no
// trace, a warning says so, and regions fetch all of the memory again.
//
// REQUIRES: plugin, scans
// RUN: %clang %s -lpthread -o %t
// RUN: env OMPTARGET_MPI_USM_CHANGES=scan OMPTARGET_MPI_STATS=1 %run2 %t unchanged 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: env OMPTARGET_MPI_USM_CHANGES=scan %run2 %t changed 2> %t.err
// RUN: %line none %t.err
// RUN: %if hosts %{ env OMPTARGET_MPI_USM_CHANGES=scan %bare %hosts alpha,beta,gamma %launch --hosts beta,gamma %t changed %}
// RUN: env OMPTARGET_MPI_USM_CHANGES=scan %run2 %t direct %t 2> %t.err
// RUN: %line warning %t.err "OMPTARGET_MPI_USM_CHANGES=scan has no effect any more" "watched.c.tmp"
//
// Three or four of ten regions have fetched 2 MiB, and what else they use; all ten would have fetched 21 MB.
// CHECK:      omptarget-mpi: device 0
// CHECK:      {{^ within the device}}
// CHECK-NEXT: {{^ program's memory fetched +[1-9][0-9]* +([6-9]|1[0-3])[0-9]{6} +[0-9.]+ (us|ms|s)$}}

#define _GNU_SOURCE
#include "unified.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { PAGE = 4096, PAGES = 512, N = PAGES * PAGE };

static unsigned char *memory;

static void map(void *at) {
  int kind = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
  memory = mmap(at, N, PROT_READ | PROT_WRITE, kind, -1, 0);
  CHECK(memory != MAP_FAILED);
}

/// True if a region finds the first byte of each page as the program does.
static int is_seen(int device) {
  unsigned char *p = memory, expected[PAGES], *e = expected;
  int wrong = 0;
  for (int i = 0; i < PAGES; ++i)
    expected[i] = p[i * PAGE];
#pragma omp target device(device) map(tofrom : wrong) firstprivate(p, e)
  for (int i = 0; i < PAGES; ++i)
    wrong += p[i * PAGE] != e[i];
  return !wrong;
}

static void *store(void *argument) {
  for (int i = 0; i < PAGES; i += 7)
    memory[i * PAGE] += 1;
  return argument;
}

static void change(int way) {
  unsigned char *p = memory;
  switch (way) {
  case 0:
    store(NULL);
    break;
  case 1: {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, store, NULL) == 0 && pthread_join(thread, NULL) == 0);
    break;
  }
  case 2: {
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], "abcd", 4) == 4);
    struct iovec places[] = {{p, 1}, {p + 5 * PAGE, 1}};
    CHECK(read(pipes[0], p + 3 * PAGE, 2) == 2 && readv(pipes[0], places, 2) == 2);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    break;
  }
  case 3:
    CHECK(madvise(p + 8 * PAGE, 100 * PAGE, MADV_DONTNEED) == 0);
    break;
  case 4:
    map(p);
    memset(p + N / 2, 9, N / 2);
    break;
  case 5: {
    // By the system: UCX replaces the function.
    long moved = syscall(SYS_mremap, p, N / 2, N / 2, MREMAP_MAYMOVE | MREMAP_FIXED, p + N / 2);
    CHECK(moved == (long)(p + N / 2));
    CHECK(mmap(p, N / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
    store(NULL);
    break;
  }
  case 6:
#pragma omp target device(1)
    for (int i = 0; i < PAGES; i += 3)
      p[i * PAGE] += 2;
    break;
  case 7:
#pragma omp target device(0)
    for (int i = 0; i < PAGES; i += 5)
      p[i * PAGE] += 3;
    break;
  case 8: {
    int child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      store(NULL);
      _exit(0);
    }
    p[11 * PAGE] += 1;
    CHECK(waitpid(child, NULL, 0) == child);
    break;
  }
  case 9:
    CHECK(mprotect(p, N, PROT_READ) == 0);
    CHECK(mprotect(p, N, PROT_READ | PROT_WRITE) == 0);
    p[12 * PAGE] += 1;
    break;
  case 10:
    // The kernel that finds the change comes before the one ends that has fetched the page.
#pragma omp target nowait device(0)
    {
      volatile unsigned char sum = 0;
      for (int i = 0; i < PAGES; ++i)
        sum += p[i * PAGE];
      usleep(20000);
    }
    usleep(10000);
    store(NULL);
    CHECK(is_seen(0));
#pragma omp taskwait
    break;
  }
}

int main(int argc, char **argv) {
  CHECK(argc >= 2 && omp_get_num_devices() == 2);
  map(NULL);
  memset(memory, 1, N);
  if (!strcmp(argv[1], "changed")) {
    // Memory is watched once two regions have used it, and after changes ever more rarely: each way of changing comes at
    // different times.
    for (int round = 0; round < 2; ++round) {
      for (int way = 0; way <= 10; ++way) {
        map(memory);
        memset(memory, way, N);
        for (int i = 0; i < 4; ++i)
          CHECK(is_seen(i % 3 == 2));
        for (int i = 0; i < 5; ++i) {
          change(way);
          CHECK(is_seen(0) && is_seen(1) && is_seen(0) && is_seen(1));
        }
      }
      // Elsewhere nothing is known of it yet.
      map(NULL);
    }
    return 0;
  }
  int file = argc > 2 ? open(argv[2], O_RDONLY | O_DIRECT) : -1;
  CHECK(argc == 2 || file >= 0);
  for (int i = 0; i < 10; ++i)
    CHECK(is_seen(0));
  return 0;
}
