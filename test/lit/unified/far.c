// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device on another host is sent memory once: later regions get what has changed, 64 KiB around it, and for the rest the
// program's word that it is the same. All of it is what the program has when the region begins, whoever has changed it.
//
// REQUIRES: hosts
//
// RUN: %clang %s -o %t
// RUN: %bare %hosts alpha,beta,gamma env LIBOMPTARGET_DEBUG=1 %launch --hosts beta,gamma %t 2> %t.err
// RUN: %messages %t.err > %t.out
// RUN: FileCheck %s --match-full-lines --input-file %t.out
// RUN: %bare %hosts alpha,beta,gamma env OMPTARGET_MPI_STATS=1 %launch --hosts beta,gamma %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err --check-prefix=STATS
//
// CHECK:      first: {{[0-9]+}} out ({{[67][0-9]{4} bytes}}), {{.*}} {{[1-9]}} bulk
// CHECK-NEXT: again: 2 out ({{[0-9]+ bytes}}), {{.*}} 0 bulk
// CHECK-NEXT: one byte: {{[0-9]+}} out ({{6[0-9]{4} bytes}}), {{.*}} 0 bulk
// CHECK-NEXT: mapped again: {{[0-9]+}} out ({{[0-9]{3} bytes}}), {{.*}} {{[1-9]}} bulk
// CHECK-NEXT: the same data mapped again: 2 out ({{[0-9]+ bytes}}), {{.*}} 0 bulk
// CHECK-NEXT: changed by another device: {{[0-9]+}} out ({{6[0-9]{4} bytes}}), {{.*}}
// CHECK-NEXT: changed by this device: 2 out ({{[0-9]+ bytes}}), {{.*}}
// CHECK-NEXT: a region beside one: {{[0-9]+}} out ({{6[0-9]{4} bytes}}), {{.*}}
// CHECK-NEXT: after both: 2 out ({{[0-9]+ bytes}}), {{.*}}
// CHECK-NEXT: changed while a region ran: {{[0-9]+}} out ({{6[0-9]{4} bytes}}), {{.*}}
//
// CHECK-NEXT: written: {{[0-9]+}} out ({{[0-9]+ bytes}}), {{[0-9]+}} back ({{[1-9][0-9]{5} bytes}}), 4 bulk
// CHECK-NEXT: after that: {{[0-9]+}} out ({{[0-9]{3,5} bytes}}), {{.*}} 0 bulk
//
// STATS:      omptarget-mpi: device 0
// STATS:      {{^ program's memory fetched +[1-9][0-9]* +8[0-9]{6} +[0-9.]+ (us|ms|s)$}}
// STATS-NEXT: {{^ program's memory unchanged +[1-9][0-9]* +[0-9]{8} +[0-9.]+ (us|ms|s)$}}
// STATS-NEXT: {{^ program's memory changed +2 +4[0-9]{6} +[0-9.]+ (us|ms|s)$}}

#include "unified.h"
#include <sys/mman.h>

enum { N = 4 << 20, BLOCK = 64 << 10 };

static unsigned char *p;

static void begin(const char *name) { fprintf(stderr, "begin %s\n", name); }
static void end(void) { fprintf(stderr, "end\n"); }

/// Maps the only memory of the program that regions use here. What is around it can't be read.
static void map(int seed) {
  if (!p) {
    p = mmap(NULL, N + 2 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    p = (unsigned char *)(((size_t)p + BLOCK) & -(size_t)BLOCK);
  }
  CHECK(munmap(p, N) == 0);
  CHECK(mmap(p, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
  for (int i = 0; i < N; ++i)
    p[i] = i / 1000 * seed + i;
}

static long sum(void) {
  long sum = 0;
  for (int i = 0; i < N; ++i)
    sum += p[i] * (i % 31 + 1L);
  return sum;
}

/// A region sees what the program has now.
static void read_all(const char *name) {
  unsigned char *here = p;
  long expected = sum();
  begin(name);
#pragma omp target firstprivate(here, expected)
  {
    long sum = 0;
    for (int i = 0; i < N; ++i)
      sum += here[i] * (i % 31 + 1L);
    if (sum != expected)
      __builtin_trap();
  }
  end();
}

/// A region writes a byte, as the only one.
static void write_one(int device, int i, unsigned char value) {
  unsigned char *here = p;
#pragma omp target device(device) firstprivate(here, i, value)
  here[i] = value;
  CHECK(p[i] == value);
}

static int *flags;

static int flag(int n) {
  int value;
  CHECK(omp_target_memcpy(&value, flags, sizeof value, 0, n * sizeof value, omp_get_initial_device(), 0) == 0);
  return value;
}

static void set_flag(int n) {
  int one = 1;
  CHECK(omp_target_memcpy(flags, &one, sizeof one, n * sizeof one, 0, 0, omp_get_initial_device()) == 0);
}

/// Changes a byte while a region runs that has read all of them, and runs another one beside it if `is_beside`.
static void change_meanwhile(int i, int is_beside) {
  int none[2] = {0, 0};
  CHECK(omp_target_memcpy(flags, none, sizeof none, 0, 0, 0, omp_get_initial_device()) == 0);
  unsigned char *here = p;
  volatile int *there = flags;
  long expected = sum();
#pragma omp target nowait firstprivate(here, there, expected)
  {
    long sum = 0;
    for (int i = 0; i < N; ++i)
      sum += here[i] * (i % 31 + 1L);
    if (sum != expected)
      __builtin_trap();
    there[0] = 1;
    while (!there[1])
      usleep(1000);
  }
  while (!flag(0))
    usleep(1000);
  p[i] += 1;
  if (is_beside)
    read_all("a region beside one");
  set_flag(1);
#pragma omp taskwait
}

/// A region writes to all words while the program writes to one of them. What was written comes in bulk, but for the block
/// that the program has changed.
static void write_all(void) {
  int none[2] = {0, 0};
  CHECK(omp_target_memcpy(flags, none, sizeof none, 0, 0, 0, omp_get_initial_device()) == 0);
  unsigned char *here = p, *before = malloc(N);
  volatile int *there = flags;
  memcpy(before, p, N);
  begin("written");
#pragma omp target nowait firstprivate(here, there)
  {
    for (int i = 0; i < N; i += 2)
      here[i] += 1;
    there[0] = 1;
    while (!there[1])
      usleep(1000);
  }
  while (!flag(0))
    usleep(1000);
  p[N / 2 + 1] += 1;
  set_flag(1);
#pragma omp taskwait
  end();
  for (int i = 0; i < N; ++i)
    CHECK(p[i] == (unsigned char)(before[i] + (i % 2 == 0 || i == N / 2 + 1)));
  free(before);
}

int main(void) {
  CHECK(omp_get_num_devices() == 2);
  flags = llvm_omp_target_alloc_device(2 * sizeof *flags, 0);
  CHECK(flags);
  map(3);
  read_all("first");
  read_all("again");
  p[N / 2 + 77] += 1;
  read_all("one byte");
  map(5);
  read_all("mapped again");
  map(5);
  read_all("the same data mapped again");
  write_one(1, 5, 99);
  read_all("changed by another device");
  write_one(0, 3 * BLOCK, 98);
  read_all("changed by this device");
  change_meanwhile(N - 1, 1);
  read_all("after both");
  change_meanwhile(N / 3, 0);
  read_all("changed while a region ran");
  write_all();
  read_all("after that");
  return 0;
}
