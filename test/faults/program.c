// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program to which test/faults/run does harm: program MODE PIDS. It uses two devices
// in the way that MODE names, and tells by PIDS, a file that appears when it has begun to,
// the numbers of its own process and of the devices'. It prints "right" if it came to its end
// with the right results, which the modes without an end never do, nor "end", which leaves time
// for harm before the end itself.

#include "offload.h"
#include <signal.h>
#include <sys/mman.h>

enum { LARGE = 64 << 20 };

static void begin(const char *pids) {
  char text[64], temporary[4096];
  int pid[2] = {0};
  for (int d = 0; d < 2; ++d) {
    int there = 0;
#pragma omp target map(from : there) device(d)
    there = getpid();
    pid[d] = there;
  }
  int length = snprintf(text, sizeof text, "%d %d %d\n", getpid(), pid[0], pid[1]);
  snprintf(temporary, sizeof temporary, "%s.new", pids);
  FILE *file = fopen(temporary, "w");
  CHECK(file && fwrite(text, length, 1, file) == 1 && fclose(file) == 0);
  CHECK(rename(temporary, pids) == 0);
}

static void wait_on_device(int seconds) {
#pragma omp target device(1) firstprivate(seconds)
  for (int i = 0; i < seconds * 100; ++i)
    usleep(10000);
}

/// A few regions on both devices, with results to be checked.
static void work(void) {
  enum { N = 1 << 20 };
  int *a = malloc(N * sizeof *a);
  CHECK(a);
  for (int i = 0; i < N; ++i)
    a[i] = i;
  for (int d = 0; d < 2; ++d) {
#pragma omp target map(tofrom : a[:N]) device(d)
    for (int i = 0; i < N; ++i)
      a[i] += i;
  }
  for (int i = 0; i < N; ++i)
    CHECK(a[i] == 3 * i);
  free(a);
}

/// Copies to and fro, for so many seconds or, if that is 0, for ever.
static void copies(int between, int seconds) {
  unsigned char *data = malloc(LARGE);
  CHECK(data);
  fill(data, LARGE, 1);
  void *there[2] = {omp_target_alloc(LARGE, 0), omp_target_alloc(LARGE, 1)};
  int host = omp_get_initial_device();
  CHECK(there[0] && there[1]);
  double end = omp_get_wtime() + seconds;
  while (seconds == 0 || omp_get_wtime() < end) {
    int failed = omp_target_memcpy(there[1], data, LARGE, 0, 0, 1, host);
    if (between)
      failed |= omp_target_memcpy(there[0], there[1], LARGE, 0, 0, 0, 1);
    failed |= omp_target_memcpy(data, there[1], LARGE, 0, 0, host, 1);
    // A program may go on when a copy fails; its status is its own affair then.
    if (failed)
      exit(0);
    CHECK(data[LARGE / 2] == pattern(LARGE / 2, 1));
  }
}

/// Not a part of the loop below: clang would take stack for the region in each turn.
__attribute__((noinline)) static void increment(int *n) {
#pragma omp target map(tofrom : n[0]) device(1)
  ++*n;
}

/// For so many seconds or, if that is 0, for ever.
static void short_regions(int seconds) {
  double end = omp_get_wtime() + seconds;
  for (int n = 0; seconds == 0 || omp_get_wtime() < end;) {
    int before = n;
    increment(&n);
    CHECK(n == before + 1);
  }
}

/// Regions of device 1 change the program's memory by its own address, for ever.
static void unmapped(void) {
  unsigned char *data = malloc(LARGE);
  CHECK(data);
  fill(data, LARGE, 1);
  for (int n = 1;; ++n) {
#pragma omp target device(1) firstprivate(data)
    for (int i = 0; i < LARGE; ++i)
      data[i] += 1;
    CHECK(data[LARGE / 2] == (unsigned char)(pattern(LARGE / 2, 1) + n));
  }
}

/// A region of device 1 reads the program's memory backwards, which nothing foresees: for many seconds it does hardly
/// anything but wait for memory.
static void fetch(void) {
  const size_t size = (size_t)4 << 30, step = 64 << 10;
  unsigned char *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(data != MAP_FAILED);
  long sum = 0;
#pragma omp target device(1) firstprivate(data) map(tofrom : sum)
  for (size_t at = size; at > 0; at -= step)
    sum += data[at - step];
  CHECK(sum == 0);
}

#pragma omp begin declare target
/// Takes all of the stack.
__attribute__((noinline)) static int deep(int n) {
  volatile char room[4096];
  room[n % 4096] = (char)n;
  return n == 0 ? 0 : deep(n + 1) + room[(n + 1) % 4096];
}
#pragma omp end declare target

/// More memory than what a limit of the test leaves.
static void much(size_t bytes) {
  unsigned char *at = omp_target_alloc(bytes, 1);
  CHECK(at);
#pragma omp target is_device_ptr(at) device(1)
  memset(at, 1, bytes);
  int last = 0;
#pragma omp target is_device_ptr(at) device(1) map(from : last)
  last = at[bytes - 1];
  CHECK(last == 1);
}

/// Ends in the way of the name, within a kernel on device 1.
static void crash(const char *name) {
  char how[16] = "";
  strncpy(how, name, sizeof how - 1);
  int got = 0;
#pragma omp target device(1) map(to : how) map(from : got)
  {
    volatile int zero = 0, *volatile nowhere = (int *)8;
    if (!strcmp(how, "segv"))
      *nowhere = 1;
    else if (!strcmp(how, "fpe"))
      got = 7 / zero;
    else if (!strcmp(how, "ill"))
      __builtin_trap();
    else if (!strcmp(how, "bus"))
      raise(SIGBUS);
    else if (!strcmp(how, "abort"))
      abort();
    else if (!strcmp(how, "exit"))
      exit(0);
    else if (!strcmp(how, "overflow"))
      got = deep(1);
  }
  printf("got %d\n", got);
}

static int is(const char *mode, const char *name) { return strcmp(mode, name) == 0; }

int main(int argc, char **argv) {
  CHECK(argc == 3);
  const char *mode = argv[1];
  need_devices(2);
  if (is(mode, "end"))
    work();
  begin(argv[2]);
  if (is(mode, "end")) {
    sleep(2);
    return 0;
  }
  if (is(mode, "kernel"))
    wait_on_device(100);
  else if (is(mode, "pause"))
    wait_on_device(6);
  else if (is(mode, "copy"))
    copies(0, 0);
  else if (is(mode, "copy-some"))
    copies(0, 12);
  else if (is(mode, "exchange"))
    copies(1, 0);
  else if (is(mode, "regions"))
    short_regions(0);
  else if (is(mode, "regions-some"))
    short_regions(6);
  else if (is(mode, "unmapped"))
    unmapped();
  else if (is(mode, "fetch"))
    fetch();
  else if (is(mode, "later"))
    sleep(2), work();
  else if (is(mode, "much"))
    much(768 << 20);
  else if (!strncmp(mode, "crash-", 6))
    crash(mode + 6);
  else if (is(mode, "print")) {
#pragma omp target device(1)
    printf("a line from device 1\n");
  }
  work();
  fprintf(stderr, "right\n");
  return 0;
}
