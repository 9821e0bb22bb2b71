// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device process that is taken away with its kernel: the process above it tells which
// signal it was, or that the kernel ended the process past all handlers, and what ran.
//
// RUN: %clang %s -o %t
// RUN: %fails-clean %t kill 2> %t.err
// RUN: %takes "was ended by signal SIGKILL .*OOM killer.*, while kernel main, line [0-9]+ ran$"
// RUN: %fails %t term 2> %t.err
// RUN: %takes "was ended by signal SIGTERM, while kernel main, line [0-9]+ ran$"
// RUN: %fails %t handler 2> %t.err
// RUN: %takes "was ended by signal SIGSEGV, while kernel main, line [0-9]+ ran"
// RUN: %fails-clean %t _exit 2> %t.err
// RUN: %takes "ended with status 6 .* _exit., while kernel main, line [0-9]+ ran$"
// RUN: %fails %t zero 2> %t.err
// RUN: %takes "ended with status 0 .* _exit., while kernel main, line [0-9]+ ran$"
// RUN: %fails %t idle 2> %t.err
// RUN: %takes "was ended by signal SIGKILL .*, while no kernel ran"

#include "offload.h"
#include <signal.h>

int main(int argc, char **argv) {
  need_devices(2);
  char how = argv[argc - 1][0];
  if (how == 'i') {
    int pid = 0;
#pragma omp target map(from : pid) device(1)
    pid = getpid();
    kill(pid, SIGKILL);
    sleep(20);
  }
#pragma omp target firstprivate(how) device(1)
  {
    if (how == 'k')
      kill(getpid(), SIGKILL);
    else if (how == 't')
      kill(getpid(), SIGTERM);
    else if (how == '_')
      _exit(6);
    else if (how == 'z')
      _exit(0);
    signal(SIGSEGV, SIG_DFL);
    *(volatile int *)16 = 1;
  }
  puts("after");
  return 0;
}
