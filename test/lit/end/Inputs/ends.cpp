// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that ends in the way that its first argument names; see tools/ends.py.

#include "offload.h"
#include <csignal>
#include <exception>
#include <pthread.h>
#include <sys/time.h>

/// How long a region takes, and a thread pauses behind it, in microseconds.
static long duration = 0, interval = 0;
static int status_of_handler = 0;

static void region() {
  int x = 1;
  long time = duration;
#pragma omp target map(tofrom : x) firstprivate(time)
  {
    x += 1;
    if (time)
      usleep(time);
  }
  // A region that does nothing, while the process ends, must not go unnoticed.
  if (x != 2) {
    fprintf(stderr, "a region had no effect\n");
    _exit(99);
  }
}

static void *run_regions(void *unused) {
  for (;;) {
    region();
    if (interval)
      usleep(interval);
  }
  return unused;
}

/// Copies large data to the device, again and again.
static void copy() {
  static char data[64 << 20];
#pragma omp target enter data map(to : data)
  for (;;) {
#pragma omp target update to(data)
  }
}

static void *run_regions_and_exit(void *unused) {
  for (int i = 0; i < 300; ++i)
    region();
  exit(6);
  return unused;
}

static void start(void *(*function)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
}

static void on_alarm(int) { exit(status_of_handler); }

/// Lets a signal handler call exit between `least` and twice as many microseconds from now.
static void alarm_in(int least, int status) {
  status_of_handler = status;
  struct sigaction action = {};
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, NULL);
  srand(getpid());
  struct itimerval timer = {{0, 0}, {0, least + rand() % least}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void raise_and_wait(int signal) {
  // A job in the background of a shell ignores SIGINT.
  std::signal(signal, SIG_DFL);
  kill(getpid(), signal);
  sleep(60);
}

/// When the main thread waits for another one that uses a device: in an exit handler, in a destructor before libomptarget
/// forgets the program's regions, or in one after that.
static bool in_handler, in_destructor, at_last;

static void *allocate(void *unused) {
  omp_target_free(omp_target_alloc(8, 0), 0);
  return unused;
}

static void wait_for(void *(*function)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void *run_region(void *unused) {
  region();
  return unused;
}

static void on_exit() {
  if (in_handler)
    wait_for(run_region);
}

__attribute__((destructor(200))) static void destroy() {
  if (in_destructor)
    wait_for(run_region);
}

__attribute__((destructor(0))) static void destroy_last() {
  if (at_last)
    wait_for(allocate);
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  const char *how = argv[1];
  auto is = [how](const char *name) { return strcmp(how, name) == 0; };
  long number = argc > 2 ? atol(argv[2]) : 0;
  if (is("handler-while-loading")) {
    duration = 2000;
    alarm_in(20000, 3);
    run_regions(NULL);
  }
  if (!getenv("HOST_PLUGIN"))
    need_devices(1);
  if (is("return"))
    return 5;
  if (is("exit"))
    exit(3);
  if (is("_exit"))
    _exit(4);
  if (is("quick_exit"))
    quick_exit(4);
  if (is("abort"))
    abort();
  if (is("terminate"))
    std::terminate();
  if (is("interrupt"))
    raise_and_wait(SIGINT);
  if (is("be-terminated"))
    raise_and_wait(SIGTERM);
  if (is("handler")) {
    duration = 2000;
    alarm_in(20000, number);
    run_regions(NULL);
  }
  if (is("threads") || is("pausing-threads")) {
    (is("threads") ? duration : interval) = number;
    for (int i = 0; i < 3; ++i)
      start(run_regions);
    usleep(50000);
    exit(argc > 3 ? atoi(argv[3]) : 7);
  }
  if (is("handler-while-copying")) {
    alarm_in(200000, number);
    copy();
  }
  if (is("thread")) {
    start(run_regions);
    start(run_regions);
    start(run_regions_and_exit);
    for (;;)
      pause();
  }
  if (is("without-main")) {
    start(run_regions_and_exit);
    pthread_exit(NULL);
  }
  if (is("in-handler") || is("in-destructor") || is("at-last")) {
    in_handler = is("in-handler");
    in_destructor = is("in-destructor");
    at_last = is("at-last");
    atexit(on_exit);
    if (argc > 3)
      wait_for(run_region);
    printf("output\n");
    exit(number);
  }
  if (is("pending")) {
    static int to[20];
    for (int i = 0; i < 20; ++i) {
#pragma omp target nowait map(tofrom : to[i : 1])
      {
        usleep(100000);
        to[i] = i;
      }
    }
    exit(number);
  }
  if (is("nowait")) {
    static int to[2];
    for (int i = 0; i < 2; ++i) {
#pragma omp target nowait map(tofrom : to[i : 1])
      {
        usleep(200000);
        to[i] = i;
      }
    }
    usleep(100000);
    return 3;
  }
  return 1;
}
