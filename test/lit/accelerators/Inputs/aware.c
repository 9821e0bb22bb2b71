// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes MPI one that says it is aware of CUDA, with AWARE=odd only in processes of odd rank. Counts the bytes that it is to
// move from and to the stand-in's memory, and ends the process unless CUDA's context is current there.

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

int MPIX_Query_cuda_support(void) {
  const char *who = getenv("AWARE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  rank = rank ? rank : getenv("PMI_RANK");
  return !who || strcmp(who, "odd") || (rank && atoi(rank) % 2);
}

/// True if this is the stand-in's memory.
static int is_accelerators(Any at) {
  if (at < BEGIN || at >= END)
    return 0;
  void *driver = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD), *context = NULL;
  int (*current)(void **) = driver ? (int (*)(void **))dlsym(driver, "cuCtxGetCurrent") : NULL;
  if (!current || current(&context) || !context) {
    fprintf(stderr, "MPI accesses the accelerator's memory in a thread without a context\n");
    abort();
  }
  return 1;
}

static void count(enum Count which, Any at, Any bytes) {
  static uint64_t *all;
  const char *path = getenv("STANDIN_COUNTS");
  if (!is_accelerators(at) || !path)
    return;
  if (!all)
    all = mmap(NULL, COUNTS * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, open(path, O_RDWR), 0);
  __atomic_add_fetch(&all[which], bytes, __ATOMIC_RELAXED);
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
  count(SENT, at, bytes);
  return ((Call *)real("MPI_Isend"))(at, bytes, type, to, tag, ranks, request);
}

int MPI_Irecv(Any at, int bytes, Any type, Any from, Any tag, Any ranks, Any request) {
  typedef int Call(Any, Any, Any, Any, Any, Any, Any);
  count(RECEIVED, at, bytes);
  return ((Call *)real("MPI_Irecv"))(at, bytes, type, from, tag, ranks, request);
}

int MPI_Sendrecv(Any at, Any n, Any type, Any to, Any tag, Any there, Any room, Any its, Any from, Any other, Any ranks,
                 Any status) {
  typedef int Call(Any, Any, Any, Any, Any, Any, Any, Any, Any, Any, Any, Any);
  (void)is_accelerators(at), (void)is_accelerators(there);
  return ((Call *)real("MPI_Sendrecv"))(at, n, type, to, tag, there, room, its, from, other, ranks, status);
}
