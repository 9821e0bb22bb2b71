// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that is no private anonymous memory in small pages: huge pages, shared memory that another process writes, files
// mapped shared and private.
//
// RUN: %clang -D_GNU_SOURCE %s -o %t
// RUN: %run1 %t %t.file 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const size_t N = 8 << 20;

/// Checks that it holds pattern `seed`, and makes it the next one, but for one byte of 4096.
static void next(unsigned char *p, unsigned seed) {
  size_t n = N, wrong = 0;
#pragma omp target map(from : wrong)
  {
    wrong = differences(p, n, seed);
    for (size_t i = 0; i < n; ++i)
      if (i % 4096 != 99)
        p[i] = pattern(i, seed + 1);
  }
  CHECK(wrong == 0);
  for (size_t i = 0; i < n; ++i)
    CHECK(p[i] == pattern(i, i % 4096 != 99 ? seed + 1 : seed));
  fill(p, n, seed + 1);
}

static void huge(void) {
  unsigned char *p = aligned_alloc(2 << 20, N);
  CHECK(p && madvise(p, N, MADV_HUGEPAGE) == 0);
  fill(p, N, 1);
  next(p, 1);
  CHECK(madvise(p, N, MADV_NOHUGEPAGE) == 0);
  next(p, 2);
  CHECK(madvise(p, N, MADV_DONTNEED) == 0);
  size_t sum = 0, n = N;
#pragma omp target map(from : sum)
  {
    sum = 0;
    for (size_t i = 0; i < n; ++i)
      sum += p[i];
  }
  CHECK(sum == 0);
  free(p);
}

static void shared(void) {
  unsigned char *p = mmap(NULL, N, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  for (unsigned seed = 1; seed < 9; seed += 2) {
    pid_t child = fork();
    if (child == 0) {
      fill(p, N, seed);
      _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    next(p, seed);
  }
  CHECK(munmap(p, N) == 0);
}

static void files(const char *name) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && ftruncate(fd, N) == 0);
  int both = PROT_READ | PROT_WRITE;
  unsigned char *p = mmap(NULL, N, both, MAP_SHARED, fd, 0);
  unsigned char *copy = mmap(NULL, N, both, MAP_PRIVATE, fd, 0);
  CHECK(p != MAP_FAILED && copy != MAP_FAILED);
  fill(p, N, 1);
  next(p, 1);
  // It is in the file.
  unsigned char *read = malloc(N);
  CHECK(pread(fd, read, N, 0) == (ssize_t)N && differences(read, N, 2) == 0);
  // What is written to the file is seen through both.
  fill(read, N, 5);
  CHECK(pwrite(fd, read, N, 0) == (ssize_t)N);
  next(p, 5);
  next(copy, 6);
  CHECK(pread(fd, read, N, 0) == (ssize_t)N && differences(read, N, 6) == 0);
  CHECK(differences(copy, N, 7) == 0);
  // Read-only, and read only.
  unsigned char *fixed = mmap(NULL, N, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(fixed != MAP_FAILED);
  size_t wrong = 1, n = N;
#pragma omp target map(from : wrong)
  wrong = differences(fixed, n, 6);
  CHECK(wrong == 0);
  free(read);
  CHECK(munmap(p, N) == 0 && munmap(copy, N) == 0 && munmap(fixed, N) == 0);
  CHECK(close(fd) == 0 && unlink(name) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(1);
  huge();
  shared();
  files(argv[1]);
  return 0;
}
