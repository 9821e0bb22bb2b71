// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// However the host program ends, by return, exit, abort, a signal, or in the
// middle of a region that runs on: the devices end within two seconds (ten here,
// for a machine that does much else), nothing is left, and the status is not
// lost where the launcher passes it on.
//
// RUN: %clang %s -o %t
// RUN: %run2 --devices-gone 10 --no-files %t return
// RUN: %run2 --devices-gone 10 --no-files --rc 3 %t exit
// RUN: %run2 --devices-gone 10 --rc any --timeout 30 %t pending
// RUN: %run2 --devices-gone 10 --rc fail %t abort
// RUN: %run2 --devices-gone 10 --rc fail %t kill
// RUN: %run2 --devices-gone 10 --rc fail %t term
// RUN: %run2 --devices-gone 10 --rc fail %t _exit
// RUN: %run2 --devices-gone 10 --rc fail %t running
// RUN: %run --ranks hdd --devices-gone 10 --rc fail %t running

#include "offload.h"
#include <signal.h>

#pragma omp declare target
int running;
#pragma omp end declare target

static void end(const char *how) {
  int sum[2] = {0, 0};
  if (!strcmp(how, "exit"))
    exit(3);
  if (!strcmp(how, "abort"))
    abort();
  if (!strcmp(how, "kill"))
    kill(getpid(), SIGKILL);
  if (!strcmp(how, "term"))
    kill(getpid(), SIGTERM);
  if (!strcmp(how, "_exit"))
    _exit(4);
  if (!strcmp(how, "pending")) {
    // Two regions on their way: libomptarget is torn down under libomp's helper
    // threads. Any status may come of it, and now and then libomp itself never
    // returns from its destructor: the alarm is for that.
    alarm(5);
    for (int d = 0; d < 2; ++d) {
#pragma omp target nowait map(tofrom : sum[d : 1]) device(d)
      {
        usleep(300000);
        sum[d] = d;
      }
    }
    exit(3);
  }
  if (!strcmp(how, "running")) {
    // Regions that would go on for a minute.
#pragma omp parallel num_threads(3)
    {
      int me = omp_get_thread_num();
      if (me < 2) {
#pragma omp target device(me)
        for (int i = 0; i < 600; ++i) {
          running = 1;
          usleep(100000);
        }
      } else {
        for (int d = 0; d < 2; ++d)
          do {
#pragma omp target update from(running) device(d)
          } while (!running);
        _exit(5);
      }
    }
  }
}

int main(int argc, char **argv) {
  need_devices(2);
  end(argc > 1 ? argv[1] : "return");
  return 0;
}
