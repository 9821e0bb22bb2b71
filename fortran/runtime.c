// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What flang's target regions call on a device, for devices that are CPUs.
//
// clang compiles a region for a CPU the way it compiles the program: as calls to libomp. flang 22
// compiles every region as if for a GPU: as calls to LLVM's device runtime, which LLVM does not
// build for CPUs, so that no region links. This file implements those functions with libomp. A
// region runs as one team, and `parallel` in it as a parallel region of libomp. Programs are linked
// with -lomptarget-flang, for the sake of their device images. Other releases of LLVM have other
// functions, or other arguments: see openmp/device/ in their sources.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// The functions of libomp that are used, as openmp/runtime/src/kmp.h has them.
typedef struct ident ident_t;
typedef void (*outlined_t)(int32_t *thread, int32_t *bound, void *arguments);
void __kmpc_fork_call(ident_t *, int32_t arguments, outlined_t, ...);
void __kmpc_serialized_parallel(ident_t *, int32_t thread);
void __kmpc_end_serialized_parallel(ident_t *, int32_t thread);
void __kmpc_push_num_threads(ident_t *, int32_t thread, int32_t threads);
void __kmpc_push_proc_bind(ident_t *, int32_t thread, int bind);
int32_t __kmpc_global_thread_num(ident_t *);
void __kmpc_barrier(ident_t *, int32_t thread);
int omp_get_thread_num(void);

// Begin and end of a region. A GPU starts it on many threads, of which all but one wait in
// here for work; -1 is what that one gets, and here there is no other.
int32_t __kmpc_target_init(void *environment, void *launch) {
  (void)environment, (void)launch;
  return -1;
}

// A region that prints has a Fortran runtime library in its image, which would keep what was
// printed until the process ends.
void *_FortranAioBeginFlush(int unit, const char *file, int line) __attribute__((weak));
int _FortranAioEndIoStatement(void *statement) __attribute__((weak));

void __kmpc_target_deinit(void) {
  const int output = 6;
  if (_FortranAioBeginFlush && _FortranAioEndIoStatement)
    _FortranAioEndIoStatement(_FortranAioBeginFlush(output, __FILE__, __LINE__));
}

// libomp's says that everything runs on the host. This may be linked with the program too, which
// has an entry point, while a device's image has none.
extern void _start(void) __attribute__((weak, visibility("hidden")));

int omp_is_initial_device(void) { return _start != 0; }

// A GPU's threads do not see each other's stacks. A CPU's do, but who frees this is not always
// who took it.
void *__kmpc_alloc_shared(uint64_t bytes) { return malloc(bytes); }

void __kmpc_free_shared(void *memory, uint64_t bytes) {
  (void)bytes;
  free(memory);
}

// A parallel region: what each thread does takes all that it needs as one structure, if anything.
void __kmpc_parallel_60(ident_t *where, int32_t thread, int32_t condition, int32_t threads, int32_t bind,
                        void *outlined, void *wrapper, void **arguments, int64_t count, int32_t strict) {
  (void)wrapper, (void)strict;
  if (count > 1) {
    fprintf(stderr, "libomptarget-flang: a parallel region has %lld arguments, not 1\n", (long long)count);
    abort();
  }
  void *argument = count == 1 ? arguments[0] : NULL;
  if (!condition) {
    int32_t bound = 0;
    __kmpc_serialized_parallel(where, thread);
    ((outlined_t)outlined)(&thread, &bound, argument);
    __kmpc_end_serialized_parallel(where, thread);
    return;
  }
  if (threads > 0)
    __kmpc_push_num_threads(where, thread, threads);
  if (bind >= 0)
    __kmpc_push_proc_bind(where, thread, bind);
  __kmpc_fork_call(where, 1, (outlined_t)outlined, argument);
}

// Loops. `for` is divided among the threads of a parallel region, each of which calls this: into
// a piece for each thread, or into chunks that they take in turn. Whether one may go on before
// the others are done flang does not say, so none does. `distribute` is divided among teams: the
// one there is has all of it. After a loop that is both the parallel region ends.
#define LOOPS(SUFFIX, T)                                                                             \
  static void share_##SUFFIX(void (*body)(T, void *), void *argument, uint64_t all, uint64_t threads,\
                             uint64_t chunk) {                                                       \
    const uint64_t size = chunk ? chunk : (all + threads - 1) / threads;                             \
    for (uint64_t first = size * (uint64_t)omp_get_thread_num(); first < all; first += size * threads)\
      for (uint64_t i = first; i < first + size && i < all; ++i)                                     \
        body((T)i, argument);                                                                        \
  }                                                                                                  \
  void __kmpc_for_static_loop_##SUFFIX(ident_t *where, void (*body)(T, void *), void *argument,      \
                                       T iterations, T threads, T chunk, uint8_t one) {              \
    (void)one;                                                                                       \
    share_##SUFFIX(body, argument, (uint64_t)iterations, (uint64_t)threads, (uint64_t)chunk);        \
    __kmpc_barrier(where, __kmpc_global_thread_num(where));                                          \
  }                                                                                                  \
  void __kmpc_distribute_static_loop_##SUFFIX(ident_t *where, void (*body)(T, void *),               \
                                              void *argument, T iterations, T chunk, uint8_t one) {  \
    (void)where, (void)chunk, (void)one;                                                             \
    for (T i = 0; i < iterations; ++i)                                                               \
      body(i, argument);                                                                             \
  }                                                                                                  \
  void __kmpc_distribute_for_static_loop_##SUFFIX(                                                   \
      ident_t *where, void (*body)(T, void *), void *argument, T iterations, T threads,              \
      T team_chunk, T chunk, uint8_t one) {                                                          \
    (void)where, (void)team_chunk, (void)one;                                                        \
    share_##SUFFIX(body, argument, (uint64_t)iterations, (uint64_t)threads, (uint64_t)chunk);        \
  }

LOOPS(4, int32_t)
LOOPS(4u, uint32_t)
LOOPS(8, int64_t)
LOOPS(8u, uint64_t)
