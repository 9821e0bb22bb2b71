// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program forks between regions: its memory is copied on write then, and the child goes its own way.
//
// RUN: %clang %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <sys/wait.h>

int main(void) {
  need_devices(1);
  enum { N = 100000 };
  int *p = malloc(N * sizeof *p);
  for (int i = 0; i < N; ++i)
    p[i] = i;
  for (int round = 0; round < 10; ++round) {
    int ready[2], go[2];
    char byte = 0;
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      // The child's memory is what it was at the fork, and what it writes nobody sees.
      int wrong = 0;
      for (int i = 0; i < N; ++i)
        p[i] += i % 2;
      if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
        _exit(2);
      for (int i = 0; i < N; ++i)
        wrong += p[i] != i + round + i % 2;
      _exit(wrong != 0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
#pragma omp target
    for (int i = 0; i < N; ++i)
      p[i] += 1;
    for (int i = 0; i < N; ++i)
      CHECK(p[i] == i + round + 1);
    CHECK(write(go[1], &byte, 1) == 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 2; ++i)
      CHECK(close(ready[i]) == 0 && close(go[i]) == 0);
  }
  free(p);
  return 0;
}
