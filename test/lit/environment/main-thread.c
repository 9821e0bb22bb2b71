// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program whose main thread has ended before the first region: what the system shows of
// that thread, which is what it shows of the process, is empty then. (Open MPI's mpirun does
// not always end behind such a program: there devices are spawned. MPICH's UCX serves
// such a process by shared memory alone, and can crash in MPI_Finalize; with Open MPI 5's it spawns
// nothing.)
//
// REQUIRES: mpich || openmpi4
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %clang -shared -fPIC -DNAME=red -DSTEP=1 %S/../images/Inputs/part.c -o %t.dir/libred.so
// RUN: %clang %s -o %t -lpthread
//
// RUN: %if mpich %{ env UCX_TLS=posix,self %run2 --rc any %t 2> %t.err | FileCheck %s %}
// RUN: %if openmpi %{ env OMPTARGET_MPI_DEVICES=2 LIBOMPTARGET_DEBUG=1 %run --no-mpirun %t 2> %t.err | FileCheck %s %}
// RUN: %line none %t.err
// CHECK: own region: done
// The processes of a node wake each other nevertheless.
// RUN: FileCheck %s --input-file %t.err --allow-empty --check-prefix=WAKE
// WAKE-NOT: can't be woken
//
// A library that comes after that: its regions must not go to LLVM's host plugin.
// RUN: %if mpich %{ env UCX_TLS=posix,self %run2 --rc any %t %t.dir/libred.so 2> %t.err | FileCheck %s --check-prefix=LIBRARY %}
// RUN: %if openmpi %{ env OMPTARGET_MPI_DEVICES=2 %run --no-mpirun %t %t.dir/libred.so 2> %t.err | FileCheck %s --check-prefix=LIBRARY %}
// RUN: %line none %t.err
// LIBRARY: own region: done
// LIBRARY: library's region: done

#include "offload.h"
#include <dlfcn.h>
#include <pthread.h>

/// Waits until the main thread has ended.
static void wait_for_main(void) {
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
  do {
    usleep(1000);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file));
    fclose(file);
  } while (strrchr(line, ')')[2] != 'Z');
}

static void *rest(void *path) {
  wait_for_main();
  int (*count)(int) = NULL;
  if (path) {
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library != NULL);
    count = (int (*)(int))dlsym(library, "red_count");
    CHECK(count != NULL);
  }
  need_devices(2);
  int n = 1000;
  int *a = malloc(n * sizeof *a);
  for (int i = 0; i < n; ++i)
    a[i] = i;
#pragma omp target teams distribute parallel for map(tofrom : a[:n]) device(1)
  for (int i = 0; i < n; ++i)
    a[i] *= 2;
  for (int i = 0; i < n; ++i)
    CHECK(a[i] == 2 * i);
  puts("own region: done");
  if (count) {
    CHECK(count(0) == 101 && count(1) == 101 && count(1) == 102);
    puts("library's region: done");
  }
  exit(0);
}

int main(int argc, char **argv) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, rest, argc > 1 ? argv[1] : NULL) == 0);
  pthread_exit(NULL);
}
