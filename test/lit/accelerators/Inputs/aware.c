// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes MPI one that says it is aware of CUDA, with AWARE=odd only in processes of odd rank. Counts the bytes that it is to
// move from and to the stand-in's memory, and ends the process unless CUDA's context is current there and, from the first
// access on, in each test; it is not when the call returns, as if libomptarget had changed it. With AWARE=elsewhere what MPI
// receives there goes elsewhere. With AWARE=error and AWARE=late-error it can't send from there: at all, or after the first
// send. With AWARE=lost a device can't send anything after its first launch.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "standin.h"

// Handles are numbers or pointers, depending on the library.
typedef uintptr_t Any;

static const Any BEGIN = 0x200000000000, END = 0x300000000000;
/// MPI_ERR_TAG, in all libraries.
enum { SOME_ERROR = 4 };

static int is(const char *mode) {
  const char *aware = getenv("AWARE");
  return aware && !strcmp(aware, mode);
}

int MPIX_Query_cuda_support(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  rank = rank ? rank : getenv("PMI_RANK");
  return !is("odd") || (rank && atoi(rank) % 2);
}

/// Takes the calling thread's context, which it must have.
static void take_context(void) {
  void *driver = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD), *context = NULL;
  int (*pop)(void **) = driver ? (int (*)(void **))dlsym(driver, "cuCtxPopCurrent_v2") : NULL;
  if (!pop || pop(&context) || !context) {
    fprintf(stderr, "MPI accesses the accelerator's memory in a thread without a context\n");
    abort();
  }
}

/// There was an access to the stand-in's memory.
static int is_used;

/// True if this is the stand-in's memory.
static int is_accelerators(Any at) {
  if (at < BEGIN || at >= END)
    return 0;
  take_context();
  is_used = 1;
  return 1;
}

/// The stand-in's counts, if there are any.
static uint64_t *counts(void) {
  static uint64_t *all;
  const char *path = getenv("STANDIN_COUNTS");
  if (path && !all)
    all = mmap(NULL, COUNTS * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, open(path, O_RDWR), 0);
  return all;
}

/// True if this is the stand-in's memory.
static int count(enum Count which, Any at, Any bytes) {
  if (!is_accelerators(at))
    return 0;
  if (counts())
    __atomic_add_fetch(&counts()[which], bytes, __ATOMIC_RELAXED);
  return 1;
}

/// MPI's own function. Plugins may have opened the library for themselves only.
static void *real(const char *name) {
  static const char *const libraries[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"};
  void *function = dlsym(RTLD_NEXT, name);
  for (int i = 0; !function && i < 3; ++i) {
    void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
    function = library ? dlsym(library, name) : NULL;
  }
  return function;
}

int MPI_Isend(Any at, int bytes, Any type, Any to, Any tag, Any ranks, Any request) {
  typedef int Call(Any, Any, Any, Any, Any, Any, Any);
  static int sends;
  if (is("lost") && is_used && counts()[LAUNCH])
    return SOME_ERROR;
  if (count(SENT, at, bytes) && (is("error") || (is("late-error") && sends++)))
    return SOME_ERROR;
  return ((Call *)real("MPI_Isend"))(at, bytes, type, to, tag, ranks, request);
}

int MPI_Irecv(Any at, int bytes, Any type, Any from, Any tag, Any ranks, Any request) {
  typedef int Call(Any, Any, Any, Any, Any, Any, Any);
  if (count(RECEIVED, at, bytes) && is("elsewhere"))
    at = (Any)calloc(1, bytes);
  return ((Call *)real("MPI_Irecv"))(at, bytes, type, from, tag, ranks, request);
}

int MPI_Test(Any request, Any flag, Any status) {
  typedef int Call(Any, Any, Any);
  if (is_used)
    take_context();
  return ((Call *)real("MPI_Test"))(request, flag, status);
}
