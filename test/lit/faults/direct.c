// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plugin's own functions, called as no libomptarget does: after a failure it goes on.
// Of two devices one loses its kernel. What is queued there fails, with a status and without
// waiting; what is queued on the other one, before and after, is done and right; and the
// program's end is an orderly one.
//
// RUN: %plain-clang -shared -fPIC %S/Inputs/functions.c -o %t.so
// RUN: %clang %s -I%root/include -Wl,--no-as-needed -ldl -o %t
// RUN: %run2 --timeout 60 --no-files %t %prefix/lib/libomptarget.rtl.mpi.so %t.so 2> %t.err
// RUN: %line error %t.err "kernel crash failed on device 0 .rank 1 on host %hostname" SIGSEGV "invalid write" "a null pointer"
//
// This loads the plugin itself; LLVM 19 links it.
// UNSUPPORTED: plugins-inside
// LLVM 18's load_binary is another one.
// UNSUPPORTED: llvm18
// For LLVM 14 a retrieval waits.
// UNSUPPORTED: llvm14

#include "check.h"
#include "omptarget-mpi.h"
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *plugin;
#define F(name) ((__typeof__(__tgt_rtl_##name) *)dlsym(plugin, "__tgt_rtl_" #name))

typedef struct __tgt_async_info Queue;

enum { ADD, SLOW, CRASH, KERNELS, LARGE = 1 << 17, ROUNDS = 500 };
static void *kernels[2][KERNELS];
static int64_t *values[2];
static int64_t large[2][LARGE];

static void load(const char *path, int device) {
  static struct __tgt_offload_entry entries[KERNELS] = {
      {.name = "add"}, {.name = "slow"}, {.name = "crash"}};
  FILE *file = fopen(path, "rb");
  CHECK(file);
  static char bytes[1 << 20];
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  // The library tells images by their address.
  static struct __tgt_device_image image;
  image = (struct __tgt_device_image){bytes, bytes + size, entries, entries + KERNELS};
  // Of LLVM 15 to 17; the header has none, for each release's differs.
  struct __tgt_target_table *(*load_binary)(int32_t, struct __tgt_device_image *) =
      (__typeof__(load_binary))dlsym(plugin, "__tgt_rtl_load_binary");
  struct __tgt_target_table *table = load_binary(device, &image);
  CHECK(table && table->entries_end - table->entries_begin == KERNELS);
  for (int k = 0; k < KERNELS; ++k)
    kernels[device][k] = table->entries_begin[k].addr;
}

static int launch(int device, int kernel, intptr_t n, Queue *queue) {
  void *args[] = {values[device], (void *)n};
  ptrdiff_t offsets[] = {0, 0};
  return F(run_target_region_async)(device, kernels[device][kernel], args, offsets, 2, queue);
}

/// Sets the value of a device, adds to it and fetches it, all in one queue.
static int count(int device, int64_t start, int64_t *result, Queue *queue) {
  return F(data_submit_async)(device, values[device], &start, sizeof start, queue) |
         launch(device, ADD, 1, queue) | launch(device, ADD, 2, queue) |
         F(data_retrieve_async)(device, result, values[device], sizeof *result, queue);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  // libomptarget, which the plugin looks for, is in the process but has no regions.
  CHECK(omp_get_num_devices() >= 0);
  plugin = dlopen(argv[1], RTLD_NOW);
  if (!plugin)
    fprintf(stderr, "%s\n", dlerror());
  CHECK(plugin && F(number_of_devices)() == 2);
  for (int d = 0; d < 2; ++d) {
    CHECK(F(init_device)(d) == 0);
    load(argv[2], d);
    values[d] = F(data_alloc)(d, sizeof large[0], NULL, 0);
    CHECK(values[d]);
  }

  int64_t got[3] = {0, 0, 0};
  Queue before = {0}, doomed = {0}, behind = {0};
  // Runs on device 1 while device 0 loses its kernel.
  CHECK(launch(1, SLOW, 0, &before) == 0 && F(query_async)(1, &before) == 0);
  CHECK(count(1, 10, &got[1], &before) == 0);
  // The crash, what comes behind it in its queue, and a queue that waits for it.
  CHECK(count(0, 10, &got[0], &doomed) == 0 && launch(0, CRASH, 0, &doomed) == 0);
  void *event = NULL;
  CHECK(F(create_event)(0, &event) == 0 && F(record_event)(0, event, &doomed) == 0);
  CHECK(F(wait_event)(0, event, &behind) == 0);
  CHECK(count(0, 20, &got[2], &behind) == 0);
  CHECK(F(synchronize)(0, &doomed) != 0);
  CHECK(F(synchronize)(0, &behind) != 0 && got[2] == 0);
  CHECK(F(destroy_event)(0, event) == 0);

  // What was queued on the other device before is done.
  CHECK(F(synchronize)(1, &before) == 0 && got[1] == 13);
  // The lost one takes nothing.
  Queue after = {0};
  CHECK(!F(data_alloc)(0, 8, NULL, 0));
  CHECK(F(data_submit)(0, values[0], &got[0], 8) != 0);
  CHECK(F(data_retrieve)(0, &got[0], values[0], 8) != 0);
  CHECK(launch(0, ADD, 1, &after) != 0);
  CHECK(F(data_exchange)(1, values[1], 0, values[0], 8) != 0);
  CHECK(F(data_exchange)(0, values[0], 1, values[1], 8) != 0);
  CHECK(F(data_delete)(0, values[0], 0) == 0);
  // The other one goes on as ever: small and large data, kernels, events, memory.
  for (int64_t round = 0; round < ROUNDS; ++round) {
    Queue queue = {0}, next = {0};
    int64_t first = -1, second = -1;
    CHECK(count(1, round, &first, &queue) == 0);
    CHECK(F(create_event)(1, &event) == 0 && F(record_event)(1, event, &queue) == 0);
    CHECK(F(wait_event)(1, event, &next) == 0 && launch(1, ADD, 4, &next) == 0);
    CHECK(F(data_retrieve_async)(1, &second, values[1], sizeof second, &next) == 0);
    CHECK(F(synchronize)(1, &next) == 0 && F(sync_event)(1, event) == 0);
    CHECK(F(synchronize)(1, &queue) == 0);
    CHECK(first == round + 3 && second == round + 7);
    CHECK(F(destroy_event)(1, event) == 0);
    // What was fetched stays, though the queue, once asked, goes on.
    Queue asked = {0};
    int64_t third = -1;
    CHECK(count(1, round, &third, &asked) == 0 && F(query_async)(1, &asked) == 0);
    CHECK(launch(1, ADD, 8, &asked) == 0 && F(synchronize)(1, &asked) == 0);
    CHECK(third == round + 3);
  }
  for (int i = 0; i < LARGE; ++i)
    large[0][i] = i * 7;
  CHECK(F(data_submit)(1, values[1], large[0], sizeof large[0]) == 0);
  CHECK(F(data_retrieve)(1, large[1], values[1], sizeof large[1]) == 0);
  CHECK(memcmp(large[0], large[1], sizeof large[0]) == 0);
  CHECK(F(data_delete)(1, values[1], 0) == 0);
  return 0;
}
