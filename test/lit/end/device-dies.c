// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A device that ends under its host, by a signal or by a region that calls exit,
// ends the program: no hang, no result, nothing left. (The launcher may be quick
// to end the host too, so that no message of the plugin's is asked for.)
//
// RUN: %clang %s -o %t
// RUN: %run2 --rc fail --timeout 40 %t kill > %t.out
// RUN: FileCheck %s --input-file %t.out
// RUN: %run2 --rc fail --timeout 40 %t exit > %t.out
// RUN: FileCheck %s --input-file %t.out
// RUN: %run2 --rc fail --timeout 40 %t zero > %t.out
// RUN: FileCheck %s --input-file %t.out
// RUN: %run2 --rc fail --timeout 40 %t idle > %t.out
// RUN: FileCheck %s --input-file %t.out
//
// CHECK: begin
// CHECK-NOT: after

#include "offload.h"
#include <signal.h>

int main(int argc, char **argv) {
  need_devices(2);
  char how = argc > 1 ? argv[1][0] : 'k';
  int pid = 0, got = 0;
  puts("begin");
  fflush(stdout);
  if (how == 'i') { // killed while nothing runs there
#pragma omp target map(from : pid) device(1)
    pid = getpid();
    CHECK(pid > 1 && pid != getpid());
    kill(pid, SIGKILL);
    while (kill(pid, 0) == 0) // until it is gone
      usleep(1000);
  }
#pragma omp target firstprivate(how) map(tofrom : got) device(1)
  {
    if (how == 'k')
      kill(getpid(), SIGKILL);
    else if (how == 'e')
      exit(5);
    else if (how == 'z')
      exit(0);
    got = 1;
  }
  printf("after: %d\n", got);
  return 0;
}
