// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C library's calls that pass memory to the system take memory of the program that the region has not used before:
// each argument lies in a page of its own, far from all others. A pointer is never refused as EFAULT.
//
// RUN: %clangxx -D_GNU_SOURCE %s -o %t
// RUN: rm -rf %t.dir && mkdir %t.dir && %run1 %t %t.dir > %t.out 2> %t.err
// RUN: %line none %t.err
// RUN: FileCheck %s --input-file %t.out
// REQUIRES: plugin
//
// Output of the region and of the program, in order.
// CHECK:      begin
// CHECK-NEXT: text of the program, 7
// CHECK-NEXT: text of the program
// CHECK-NEXT: end

#include "unified.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>

/// A page with nothing near it that is fetched along.
static char *page() {
  static char *next = (char *)0x7d0000000000;
  char *p = (char *)mmap(next, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(p == next);
  next += 1 << 20;
  return p;
}

template <typename T> static T *fresh(const T &value = T()) { return new (page()) T(value); }

static char *text(const char *folder, const char *name) {
  char *p = page();
  snprintf(p, 4096, "%s%s", folder, name);
  return p;
}

/// Runs `call` in a region; it must not fail.
#define WORKS(call)                                                            \
  do {                                                                         \
    int good = 0, error = 0, *g = &good, *e = &error;                          \
    _Pragma("omp target") {                                                    \
      *g = (call);                                                             \
      *e = *g ? 0 : errno;                                                     \
    }                                                                          \
    if (!good) {                                                               \
      fprintf(stderr, "%s: %s\n", #call, strerror(error));                     \
      return 1;                                                                \
    }                                                                          \
  } while (0)

static int files(const char *dir) {
  char *path = text(dir, "/file"), *other = text(dir, "/other"), *buffer = page();
  struct stat *status = fresh<struct stat>();
  WORKS(close(creat(path, 0600)) == 0);
  WORKS(stat(path, status) == 0);
  CHECK(S_ISREG(status->st_mode));
  WORKS(lstat(path, status) == 0);
  WORKS(fstat(0, status) == 0);
  WORKS(fstatat(AT_FDCWD, path, status, 0) == 0);
  WORKS(access(path, R_OK) == 0);
  WORKS(close(openat(AT_FDCWD, path, O_RDONLY)) == 0);
  WORKS(close(open(path, O_RDONLY)) == 0);
  WORKS(fclose(fopen(path, "r")) == 0);
  WORKS(truncate(path, 100) == 0);
  WORKS(chmod(path, 0644) == 0);
  WORKS(rename(path, other) == 0);
  WORKS(symlink(other, path) == 0);
  WORKS(readlink(path, buffer, 4096) == (long)strlen(other));
  WORKS(remove(path) == 0);
  WORKS(unlink(other) == 0);
  WORKS(mkdir(path, 0700) == 0);
  WORKS(rmdir(path) == 0);
  char *folder = text(dir, "");
  WORKS(chdir(folder) == 0);
  WORKS(getcwd(buffer, 4096) != nullptr);
  WORKS(closedir(opendir(folder)) == 0);
  struct statvfs *system = fresh<struct statvfs>();
  WORKS(statvfs(folder, system) == 0);
  return 0;
}

static int data() {
  int *pair = fresh<int>();
  char *from = text("sent", ""), *to = page();
  iovec *part = fresh(iovec{to, 5});
  msghdr *message = fresh<msghdr>();
  message->msg_iov = part;
  message->msg_iovlen = 1;
  pollfd *wait = fresh<pollfd>();
  fd_set *set = fresh<fd_set>();
  timeval *none = fresh<timeval>();
  WORKS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && send(pair[0], from, 5, 0) == 5 &&
        recvmsg(pair[1], message, 0) == 5 && close(pair[0]) == 0 && close(pair[1]) == 0);
  CHECK(strcmp(to, "sent") == 0);
  WORKS(pipe(pair) == 0 && (wait->fd = pair[0], wait->events = POLLIN, write(pair[1], from, 5) == 5));
  WORKS(poll(wait, 1, 0) == 1);
  WORKS(select(1, set, nullptr, nullptr, none) == 0);
  iovec *again = fresh(iovec{page(), 5});
  WORKS(readv(pair[0], again, 1) == 5);
  CHECK(strcmp((char *)again->iov_base, "sent") == 0);
  WORKS(getrandom(page(), 16, 0) == 16);
  return 0;
}

/// The same by the numbers of the calls.
static int by_number(const char *dir) {
  char *from = text("sent", ""), *to = page(), *third = page();
  int *pair = fresh<int>();
  WORKS(pipe(pair) == 0);
  WORKS(syscall(SYS_write, pair[1], from, 5) == 5);
  WORKS(syscall(SYS_read, pair[0], to, 5) == 5);
  CHECK(strcmp(to, "sent") == 0);
  iovec *out = fresh(iovec{text("more", ""), 5}), *in = fresh(iovec{page(), 5});
  WORKS(syscall(SYS_writev, pair[1], out, 1) == 5 && syscall(SYS_readv, pair[0], in, 1) == 5);
  CHECK(strcmp((char *)in->iov_base, "more") == 0);
  WORKS(close(pair[0]) == 0 && close(pair[1]) == 0);
  WORKS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  iovec *part = fresh(iovec{text("told", ""), 5});
  msghdr *message = fresh<msghdr>();
  message->msg_iov = part;
  message->msg_iovlen = 1;
  WORKS(syscall(SYS_sendmsg, pair[0], message, 0) == 5);
  WORKS(syscall(SYS_recvfrom, pair[1], third, 5, 0, nullptr, nullptr) == 5);
  CHECK(strcmp(third, "told") == 0);
  WORKS(close(pair[0]) == 0 && close(pair[1]) == 0);
  char *path = text(dir, "/number"), *bytes = page(), *back = page();
  strcpy(bytes, "file");
  WORKS((pair[0] = open(path, O_RDWR | O_CREAT, 0600)) > 0);
  WORKS(syscall(SYS_pwrite64, pair[0], bytes, 5, 3) == 5 && syscall(SYS_pread64, pair[0], back, 5, 3) == 5);
  CHECK(strcmp(back, "file") == 0);
  WORKS(close(pair[0]) == 0);
  WORKS((pair[0] = open(dir, O_RDONLY | O_DIRECTORY)) > 0 && syscall(SYS_getdents64, pair[0], page(), 4096) > 0);
  WORKS(close(pair[0]) == 0);
  WORKS(syscall(SYS_getrandom, page(), 16, 0) == 16);
  // Nobody waits for this word.
  WORKS(syscall(SYS_futex, fresh<int>(), 1, 1, nullptr, nullptr, 0) == 0);
  // A failure that has nothing to do with the program's memory.
  WORKS(syscall(SYS_write, -1, back, 5) == -1 && errno == EBADF && syscall(SYS_uname, nullptr) == -1 && errno == EFAULT);
  return 0;
}

static int times_and_limits() {
  timespec *time = fresh(timespec{0, 1000}), *again = fresh(timespec{0, 1000});
  WORKS(nanosleep(time, nullptr) == 0);
  WORKS(clock_nanosleep(CLOCK_MONOTONIC, 0, again, nullptr) == 0);
  timespec *now = fresh<timespec>(), *cpu = fresh<timespec>();
  WORKS(clock_gettime(CLOCK_REALTIME, now) == 0);
  WORKS(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, cpu) == 0);
  CHECK(now->tv_sec > 0 && (cpu->tv_sec > 0 || cpu->tv_nsec > 0));
  timeval *today = fresh<timeval>();
  WORKS(gettimeofday(today, nullptr) == 0);
  tms *used = fresh<tms>();
  WORKS(times(used) != -1);
  struct rusage *usage = fresh<struct rusage>();
  WORKS(getrusage(RUSAGE_SELF, usage) == 0);
  rlimit *limit = fresh<rlimit>();
  WORKS(getrlimit(RLIMIT_NOFILE, limit) == 0);
  utsname *name = fresh<utsname>();
  WORKS(uname(name) == 0);
  CHECK(strcmp(name->sysname, "Linux") == 0);
  struct sysinfo *info = fresh<struct sysinfo>();
  WORKS(sysinfo(info) == 0);
  cpu_set_t *cores = fresh<cpu_set_t>();
  WORKS(sched_getaffinity(0, sizeof *cores, cores) == 0);
  CHECK(CPU_COUNT(cores) > 0);
  return 0;
}

static int streams() {
  char *format = text("%s, %d\n", ""), *string = text("text of the program", ""), *line = page();
  puts("begin");
  fflush(stdout);
  WORKS(printf(format, string, 7) > 0);
  char *other = text("text of the program", "");
  WORKS(puts(other) > 0);
  FILE **file = fresh<FILE *>();
  WORKS((*file = fopen("/proc/self/status", "r")) != nullptr && fgets(line, 100, *file) != nullptr);
  char *word = page();
  WORKS(fscanf(*file, "%s", word) == 1);
  // A buffer of the device's own.
  char **read = fresh<char *>();
  size_t *size = fresh<size_t>();
  WORKS(getline(read, size, *file) > 0 && (free(*read), fclose(*file) == 0));
  CHECK(strncmp(line, "Name:", 5) == 0 && strcmp(word, "Umask:") == 0);
  puts("end");
  return 0;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(1);
  return files(argv[1]) || data() || by_number(argv[1]) || times_and_limits() || streams();
}
