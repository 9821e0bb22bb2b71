// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every way in which a kernel can fail: one line that says how, which kernel, where, and what
// is known of the address; a status that is not 0; nothing is left.
//
// Behind the memory of LLVM's host plugin there is more memory.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -D_GNU_SOURCE -o %t
// RUN: %fails-clean %t null 2> %t.err
// RUN: %tells "SIGSEGV .invalid write. at address 0x0, a null pointer"
// RUN: %fails %t member 2> %t.err
// RUN: %tells "SIGSEGV .invalid read. at address 0x18, 24 bytes from a null pointer"
// RUN: %fails %t call 2> %t.err
// RUN: %tells "SIGSEGV .no code to execute. at address 0x0, a null pointer"
// RUN: %fails %t wild 2> %t.err
// RUN: %tells "SIGSEGV .* at an address that can.t exist"
// RUN: %fails %t past 2> %t.err
// RUN: %tells "SIGSEGV .invalid write. at address 0x[0-9a-f]+, 4096 bytes past the end of the 800000 bytes at 0x[0-9a-f]+ that were allocated"
// RUN: %fails %t before 2> %t.err
// RUN: %tells "SIGSEGV .invalid read. at address 0x[0-9a-f]+, [0-9]+ bytes before the [0-9]+ bytes at 0x[0-9a-f]+ that were allocated"
// RUN: %fails %t other 2> %t.err
// RUN: %tells "SIGSEGV .invalid write. at address 0x[0-9a-f]+, which is an address of device 0"
// RUN: %fails %t const 2> %t.err
// RUN: %tells "SIGSEGV .invalid write. at address 0x[0-9a-f]+, which can.t be written: it lies in .*image"
// RUN: %fails %t nowhere 2> %t.err
// RUN: %tells "SIGSEGV .invalid read. at address 0x123456789000, where nothing is mapped"
// RUN: %fails %t bus 2> %t.err
// RUN: %tells "SIGBUS .no memory behind the address. at address 0x"
// RUN: %fails %t divide 2> %t.err
// RUN: %tells "SIGFPE .division of an integer by zero"
// RUN: %fails %t illegal 2> %t.err
// RUN: %tells "SIGILL .illegal instruction"
// RUN: %fails %t abort 2> %t.err
// RUN: %tells "SIGABRT .abort was called"
// RUN: %fails %t raise 2> %t.err
// RUN: %tells "SIGSEGV, which it raised itself"
// RUN: %fails %t exit 2> %t.err
// RUN: %tells "it called exit, with status 0"
// RUN: %fails %t stack 2> %t.err
// RUN: %tells "SIGSEGV .stack overflow. at address 0x[0-9a-f]+: .* [0-9]+ KiB"
// RUN: %fails %t team 2> %t.err
// RUN: %tells "SIGSEGV .stack overflow. at address 0x[0-9a-f]+: .* OMP_STACKSIZE"

#include "offload.h"
#include <signal.h>
#include <sys/mman.h>

#pragma omp declare target
static const int fixed[4] = {1, 2, 3, 4};

static int deep(int n) {
  volatile char room[4096];
  room[n % 4096] = 1;
  return n == 0 ? 0 : deep(n - 1) + room[n % 4096];
}
#pragma omp end declare target

enum { N = 100000 };

int main(int argc, char **argv) {
  need_devices(2);
  char how[16] = "";
  strncpy(how, argv[argc - 1], sizeof how - 1);
  static double big[N];
  uintptr_t zero = argc > 20, got = 0;
  uintptr_t other = (uintptr_t)omp_target_alloc(64, 0);
#define IS(what) (strcmp(how, what) == 0)
#pragma omp target map(tofrom : how, got, big) firstprivate(zero, other) device(1)
  {
    if (IS("null"))
      *(volatile int *)zero = 1;
    else if (IS("member"))
      got = *(volatile int *)(zero + 24);
    else if (IS("call"))
      ((void (*)(void))zero)();
    else if (IS("wild"))
      got = *(volatile int *)(zero + 0xdead0000dead0000);
    else if (IS("past")) // large blocks lie at the end of the device's memory
      *(volatile double *)((uintptr_t)(big + N) + zero + 4096) = 1;
    else if (IS("before")) // and small ones at its begin
      got = *(volatile int *)(((uintptr_t)how & ~4095ul) - 4096 + zero);
    else if (IS("other"))
      *(volatile int *)other = 1;
    else if (IS("const"))
      *(volatile int *)(uintptr_t)(fixed + zero) = 1;
    else if (IS("nowhere"))
      got = *(volatile int *)(0x123456789000 + zero);
    else if (IS("bus")) {
      int empty = memfd_create("empty", 0);
      char *page = (char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
      page[zero] = 1;
    } else if (IS("divide"))
      got = 5 / *(volatile int *)&zero;
    else if (IS("illegal"))
      __builtin_trap();
    else if (IS("abort"))
      abort();
    else if (IS("raise"))
      raise(SIGSEGV);
    else if (IS("exit"))
      exit(0);
    else if (IS("stack"))
      got = deep(1 << 20);
    else if (IS("team")) {
#pragma omp parallel num_threads(2)
      if (omp_get_thread_num() == 1)
        got = deep(1 << 20);
    }
  }
  puts("after");
  return 0;
}
