// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region crashes once, or its process is killed: with spares the program ends with the
// right answer, with what the regions kept in globals and in their own heap, with each
// line printed once, and with one warning.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_SPARES=1 %run1 --no-files %t segv %t.once > %t.out 2> %t.err
// RUN: FileCheck %s < %t.out
// RUN: %line warning %t.err "worker 0 of rank 1" SIGSEGV "0 spares are left"
// RUN: env OMPTARGET_MPI_SPARES=2 OMPTARGET_MPI_JOURNAL=0 %run1 --no-files %t kill %t.once > %t.out 2> %t.err
// RUN: FileCheck %s < %t.out
// RUN: %line warning %t.err "worker 0 of rank 1" "signal 9|SIGKILL" "1 spares are left"
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_JOURNAL=1M %run1 %t abort %t.once > %t.out 2> %t.err
// RUN: FileCheck %s < %t.out
// RUN: %line warning %t.err SIGABRT
//
// Only the other device of the same rank notices nothing.
// RUN: env OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 %t exit %t.once > %t.out 2> %t.err
// RUN: FileCheck %s < %t.out
// RUN: %line warning %t.err "worker 0 of rank 1" exit

#include "offload.h"
#include <fcntl.h>
#include <signal.h>

enum { Steps = 40, N = 100000, Seen = 8192 };

#pragma omp declare target
static double total;
static double *heap;

/// Does so only where a file is that is gone then: once, however often it is called.
static void crash(char how, const char *once) {
  if (unlink(once))
    return;
  switch (how) {
  case 's': *(volatile int *)8 = 1; break;
  case 'k': kill(getpid(), SIGKILL); break;
  case 'a': abort();
  default: exit(3);
  }
}
#pragma omp end declare target

int main(int argc, char **argv) {
  CHECK(argc == 3);
  char how = argv[1][0], once[400] = "";
  strncpy(once, argv[2], sizeof once - 1);
  close(open(once, O_CREAT, 0600));
  double *x = malloc(N * sizeof *x);
  for (int i = 0; i < N; ++i)
    x[i] = i;
#pragma omp target
  {
    heap = malloc(Steps * sizeof *heap);
    for (int s = 0; s < Steps; ++s)
      heap[s] = s;
  }
#pragma omp target data map(tofrom : x[:N])
  for (int s = 0; s < Steps; ++s) {
    double so_far = 0, want = 0;
    // Too much for the message that reports the crash: it comes from the spare.
    static int seen[Seen];
#pragma omp target map(from : so_far, seen) map(to : once) firstprivate(s, how)
    {
      printf("step %d\n", s);
      for (int i = 0; i < Seen; ++i)
        seen[i] = s + i;
      for (int i = 0; i < N; ++i)
        x[i] += s;
      total += heap[s];
      so_far = total;
      if (s == 25)
        crash(how, once);
    }
    for (int t = 0; t <= s; ++t)
      want += t;
    CHECK(so_far == want);
    for (int i = 0; i < Seen; ++i)
      CHECK(seen[i] == s + i);
    if (s % 10 == 9) {
#pragma omp target update from(x[:N])
      CHECK(x[N - 1] == N - 1 + want);
    }
  }
  for (int i = 0; i < N; ++i)
    CHECK(x[i] == i + Steps * (Steps - 1) / 2);
  CHECK(access(once, F_OK));
  if (omp_get_num_devices() > 1) {
    int pid = 0;
#pragma omp target map(from : pid) device(1)
    pid = getpid();
    CHECK(pid && pid != getpid());
  }
  printf("the end\n");
  return 0;
}

// CHECK: {{^}}step 0{{$}}
// CHECK: {{^}}step 24{{$}}
// CHECK-NEXT: {{^}}step 25{{$}}
// CHECK-NEXT: {{^}}step 26{{$}}
// CHECK: {{^}}step 39{{$}}
// CHECK-NEXT: {{^}}the end{{$}}
