// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls that can't work with memory of the program: it belongs to the program's malloc, and its locks to the program's
// libomp. Each is an error that names the call and the address. The same calls with a device's own memory work.
//
// RUN: %clang %s -o %t
// RUN: %run1 --rc fail %t free 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "it called free with 0x[0-9a-f]+, memory of the program"
// RUN: %run1 --rc fail %t realloc 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "rank 1" %hostname "it called realloc with 0x[0-9a-f]+, memory of the program"
// RUN: %run1 --rc fail %t getline 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called getline with 0x[0-9a-f]+, memory of the program"
// RUN: %run1 --rc fail %t setvbuf 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called setvbuf with 0x[0-9a-f]+, memory of the program"
// RUN: %run1 --rc fail %t omp_free 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called omp_free with 0x[0-9a-f]+, memory of the program"
// RUN: %run1 --rc fail %t init 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called omp_init_lock with 0x[0-9a-f]+, a lock of the program"
// RUN: %run1 --rc fail %t set 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called omp_set_lock with 0x[0-9a-f]+, a lock of the program" "critical" "declares itself"
// RUN: %run1 --rc fail %t unset 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called omp_unset_lock with 0x[0-9a-f]+, a lock of the program"
// RUN: %run1 --rc fail %t test 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called omp_test_lock with 0x[0-9a-f]+, a lock of the program"
// RUN: %run1 --rc fail %t destroy 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called omp_destroy_lock with 0x[0-9a-f]+, a lock of the program"
// RUN: %run1 --rc fail %t nest 2> %t.err
// RUN: %line error %t.err "kernel main, line" "device 0" "it called omp_set_nest_lock with 0x[0-9a-f]+, a lock of the program"
// RUN: env OMP_NUM_THREADS=4 %run1 %t own 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "unified.h"

struct work {
  void *memory;
  omp_lock_t lock;
  omp_nest_lock_t nest_lock;
  long sum;
};

/// The number of the argument among the calls, from 1 on.
static int number(const char *which) {
  const char *all[] = {"free", "realloc", "omp_free", "init", "set", "unset", "test", "destroy", "nest", "own", "getline", "setvbuf"};
  for (int i = 0; i < 12; ++i)
    if (!strcmp(which, all[i]))
      return i + 1;
  return 0;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(1);
  int which = number(argv[1]);
  CHECK(which != 0);
  struct work *work = calloc(1, sizeof *work);
  work->memory = which == 3 ? omp_alloc(100, omp_default_mem_alloc) : malloc(100);
  omp_init_lock(&work->lock);
  omp_init_nest_lock(&work->nest_lock);
#pragma omp target firstprivate(which)
  {
    switch (which) {
    case 1:
      free(work->memory);
      break;
    case 2:
      work->memory = realloc(work->memory, 1000);
      break;
    case 3:
      omp_free(work->memory, omp_default_mem_alloc);
      break;
    case 4:
      omp_init_lock(&work->lock);
      break;
    case 5:
      omp_set_lock(&work->lock);
      break;
    case 6:
      omp_unset_lock(&work->lock);
      break;
    case 7:
      work->sum = omp_test_lock(&work->lock);
      break;
    case 8:
      omp_destroy_lock(&work->lock);
      break;
    case 9:
      omp_set_nest_lock(&work->nest_lock);
      break;
    case 11: {
      FILE *file = fopen("/dev/zero", "r");
      size_t size = 100;
      char **line = (char **)&work->memory;
      work->sum = getline(line, &size, file);
      break;
    }
    case 12:
      setvbuf(stdout, work->memory, _IOFBF, 100);
      break;
    default: {
      omp_nest_lock_t nest;
      omp_lock_t own, *heap = malloc(sizeof *heap);
      omp_init_nest_lock(&nest);
      omp_init_lock(heap);
      omp_init_lock(&own);
#pragma omp parallel for
      for (int i = 0; i < 1000; ++i) {
        omp_set_lock(&own);
        omp_set_lock(heap);
        work->sum += 1;
        omp_unset_lock(heap);
        omp_unset_lock(&own);
      }
      omp_set_nest_lock(&nest);
      work->sum += omp_test_nest_lock(&nest);
      omp_destroy_lock(&own);
      omp_destroy_lock(heap);
      free(realloc(heap, 1000));
      omp_free(omp_alloc(100, omp_default_mem_alloc), omp_default_mem_alloc);
    }
    }
  }
  CHECK(work->sum == 1002);
  return 0;
}
