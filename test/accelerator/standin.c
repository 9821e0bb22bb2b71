// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A stand-in for the plugin of an accelerator, for tests: what LLVM 16's libomptarget loads in place of its x86_64 plugin
// (libomptarget.rtl.x86_64.nextgen.so in LD_LIBRARY_PATH). Unlike that:
//
// - its memory can't be accessed by the process while no kernel runs: the addresses are reserved, the contents elsewhere.
//   With STANDIN_OPEN=contents it can, as a GPU-aware MPI does; with STANDIN_OPEN=other the process finds other memory there;
// - each process offers the same addresses first. It respects what is reserved, but not with the first STANDIN_STUBBORN
//   blocks of more than a page;
// - every synchronization takes 20 us, and, given STANDIN_SPEED, a copy 1 us for this many bytes, in which it sleeps as
//   while an engine copies. A device has one engine: its copies are made one after the other;
// - calls are counted in the file STANDIN_COUNTS, if there is that variable: enum Count, 8 bytes each; it also has what
//   the last launch asked for, and the bytes that are in use by all processes that have the file;
// - the call that STANDIN_FAIL names fails ("launch", or "launch:3" for the third one), and that which STANDIN_ABORT
//   names ends the process, as plugins do if the driver reports a fatal error;
// - memory of the process that it is to pin is ordinary memory or, with STANDIN_PINNED=closed, memory that no other process can
//   copy from;
// - the call that STANDIN_AWAIT names waits for the next launch;
// - it has STANDIN_MEMORY bytes (by default 1 GiB), STANDIN_DEVICES devices (2);
// - it takes images for this machine that claim to be for STANDIN_MACHINE (62, x86-64), and bitcode, if there is a command
//   STANDIN_COMPILER that makes object files and libraries of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "standin.h"

typedef struct {
  void *addr;
  char *name;
  size_t size;
  int32_t flags, reserved;
} Entry;

typedef struct {
  char *start, *end;
  Entry *entries, *entries_end;
} Image;

typedef struct {
  Entry *entries, *entries_end;
} Table;

typedef struct {
  void *queue;
} AsyncInfo;

typedef struct {
  uint32_t version, count;
  void **bases, **pointers;
  int64_t *sizes, *types;
  void **names, **mappers;
  uint64_t tripcount, flags;
  uint32_t teams[3], threads[3], dynamic;
} KernelArgs;

enum { SUCCESS = 0, FAIL = ~0, BLOCKS = 64, ARGUMENTS = 24, KIND_HOST = 1 };
// Where an ELF file names its machine.
enum { MACHINE = 18, X86_64 = 62 };

static const uintptr_t BASE = 0x200000000000, STEP = 0x10000000000;

/// Memory of the accelerator: reserved addresses, and where the contents are.
static struct Block {
  char *at, *contents;
  size_t size;
  int file;
} blocks[BLOCKS];
/// Memory of the process that is pinned.
static struct Pinned {
  char *at;
  size_t size;
} pinned[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int running;

static uint64_t *counts(void) {
  static uint64_t none[COUNTS], *all;
  const char *path = getenv("STANDIN_COUNTS");
  if (!all && path) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file >= 0 && ftruncate(file, sizeof none) == 0)
      all = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  return all && all != MAP_FAILED ? all : none;
}

/// True if the variable names the call, or the n-th one if that is what this is.
static int is_named(const char *variable, const char *name, uint64_t n) {
  const char *value = getenv(variable);
  size_t len = strlen(name);
  if (!value || strncmp(value, name, len) || (value[len] && value[len] != ':'))
    return 0;
  return !value[len] || strtoull(value + len + 1, NULL, 10) == n;
}

/// Counts a call; true if it is to fail.
static int call(enum Count which, const char *name) {
  uint64_t n = __atomic_add_fetch(&counts()[which], 1, __ATOMIC_RELAXED);
  if (is_named("STANDIN_AWAIT", name, n)) {
    uint64_t launches = __atomic_load_n(&counts()[LAUNCH], __ATOMIC_RELAXED);
    while (__atomic_load_n(&counts()[LAUNCH], __ATOMIC_RELAXED) == launches)
      usleep(100);
  }
  // In two pieces, as plugins do.
  if (is_named("STANDIN_ABORT", name, n)) {
    fprintf(stderr, "\"PluginInterface\" error: ");
    fprintf(stderr, "%s ends the process, as the test asked\n", name);
    abort();
  }
  if (!is_named("STANDIN_FAIL", name, n))
    return 0;
  fprintf(stderr, "\"PluginInterface\" error: ");
  fprintf(stderr, "%s fails, as the test asked\n", name);
  return 1;
}

static size_t number(const char *name, size_t otherwise) {
  const char *value = getenv(name);
  return value ? strtoull(value, NULL, 10) : otherwise;
}

/// The contents of a range of the accelerator's memory; other addresses are those of globals.
static void *contents(void *at, size_t size) {
  for (struct Block *b = blocks; b < blocks + BLOCKS; ++b)
    if (b->at && (char *)at >= b->at && (char *)at + size <= b->at + b->size)
      return b->contents + ((char *)at - b->at);
  return at;
}

/// Leaves the addresses of a block as they are while no kernel runs.
static void close_block(struct Block *b) {
  const char *open = getenv("STANDIN_OPEN");
  if (!open)
    mmap(b->at, b->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  else if (strcmp(open, "contents"))
    mmap(b->at, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  else
    mmap(b->at, b->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, b->file, 0);
}

static int is_bitcode(Image *image) { return !memcmp(image->start, "BC\xc0\xde", 4); }

int32_t __tgt_rtl_number_of_devices(void) { return (int32_t)number("STANDIN_DEVICES", 2); }

int32_t __tgt_rtl_is_valid_binary(Image *image) {
  if (image->end - image->start >= 20 && is_bitcode(image))
    return getenv("STANDIN_COMPILER") != NULL;
  return image->end - image->start >= 20 && !memcmp(image->start, "\177ELF", 4) &&
         (uint8_t)image->start[MACHINE] == number("STANDIN_MACHINE", X86_64);
}

int32_t __tgt_rtl_init_device(int32_t device) {
  (void)device;
  return call(INIT, "init") ? FAIL : SUCCESS;
}

Table *__tgt_rtl_load_binary(int32_t device, Image *image) {
  (void)device;
  if (call(LOAD, "load"))
    return NULL;
  int file = memfd_create("image", 0);
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  size_t size = image->end - image->start;
  char machine = X86_64, command[512];
  int is_written = write(file, image->start, size) == (ssize_t)size;
  if (is_written && is_bitcode(image)) {
    int library = memfd_create("library", 0);
    snprintf(command, sizeof command, "%s -shared -fPIC -x ir /proc/%d/fd/%d -o /proc/%d/fd/%d", getenv("STANDIN_COMPILER"),
             getpid(), file, getpid(), library);
    is_written = system(command) == 0;
    file = library;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  } else {
    is_written = is_written && pwrite(file, &machine, 1, MACHINE) == 1;
  }
  void *library = is_written ? dlopen(path, RTLD_NOW) : NULL;
  if (!library) {
    fprintf(stderr, "\"PluginInterface\" error: %s\n", dlerror());
    return NULL;
  }
  size_t n = image->entries_end - image->entries;
  Table *table = malloc(sizeof *table);
  table->entries = calloc(n ? n : 1, sizeof *table->entries);
  table->entries_end = table->entries + n;
  for (size_t i = 0; i < n; ++i) {
    table->entries[i] = image->entries[i];
    table->entries[i].addr = dlsym(library, image->entries[i].name);
    if (!table->entries[i].addr) {
      fprintf(stderr, "\"PluginInterface\" error: no %s\n", image->entries[i].name);
      return NULL;
    }
  }
  return table;
}

static void *pin(size_t size) {
  if (call(PIN, "pin"))
    return NULL;
  int access = getenv("STANDIN_PINNED") ? PROT_NONE : PROT_READ | PROT_WRITE;
  void *at = mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  pthread_mutex_lock(&lock);
  struct Pinned *p = pinned;
  while (p < pinned + BLOCKS - 1 && p->at)
    ++p;
  *p = (struct Pinned){at, size};
  pthread_mutex_unlock(&lock);
  return at;
}

static int32_t unpin(void *at) {
  int32_t status = FAIL;
  pthread_mutex_lock(&lock);
  for (struct Pinned *p = pinned; p < pinned + BLOCKS; ++p)
    if (p->at == at) {
      munmap(p->at, p->size);
      *p = (struct Pinned){0};
      status = SUCCESS;
      __atomic_add_fetch(&counts()[UNPIN], 1, __ATOMIC_RELAXED);
    }
  pthread_mutex_unlock(&lock);
  return status;
}

/// Counts a copy if it is one from or to pinned memory.
static void count_pinned(enum Count which, void *at, size_t size) {
  for (struct Pinned *p = pinned; p < pinned + BLOCKS; ++p)
    if (p->at && (char *)at >= p->at && (char *)at + size <= p->at + p->size)
      __atomic_add_fetch(&counts()[which], 1, __ATOMIC_RELAXED);
}

void *__tgt_rtl_data_alloc(int32_t device, int64_t size, void *host, int32_t kind) {
  (void)device, (void)host;
  if (kind == KIND_HOST)
    return pin(size);
  if (call(ALLOC, "alloc"))
    return NULL;
  size = (size + 4095) & ~4095l;
  pthread_mutex_lock(&lock);
  struct Block *b = blocks;
  while (b < blocks + BLOCKS && b->at)
    ++b;
  static unsigned long large;
  int stubborn = size > 4096 && large < number("STANDIN_STUBBORN", 0);
  void *at = MAP_FAILED;
  if (b < blocks + BLOCKS && counts()[USED] + size <= number("STANDIN_MEMORY", 1ul << 30)) {
    for (uintptr_t try = BASE; at == MAP_FAILED && try < BASE + 16 * STEP; try += STEP) {
      int fixed = stubborn ? MAP_FIXED : MAP_FIXED_NOREPLACE;
      at = mmap((void *)try, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
    }
  }
  if (at != MAP_FAILED) {
    large += size > 4096;
    int file = memfd_create("accelerator", 0);
    void *there = ftruncate(file, size) ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    *b = (struct Block){at, there, size, file};
    close_block(b);
    __atomic_add_fetch(&counts()[USED], size, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&lock);
  return at == MAP_FAILED ? NULL : at;
}

int32_t __tgt_rtl_data_delete(int32_t device, void *at, int32_t kind) {
  (void)device;
  if (kind == KIND_HOST)
    return unpin(at);
  pthread_mutex_lock(&lock);
  for (struct Block *b = blocks; b < blocks + BLOCKS; ++b)
    if (b->at == at) {
      munmap(b->at, b->size);
      munmap(b->contents, b->size);
      close(b->file);
      __atomic_sub_fetch(&counts()[USED], b->size, __ATOMIC_RELAXED);
      *b = (struct Block){0};
    }
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

int32_t __tgt_rtl_synchronize(int32_t device, AsyncInfo *info) {
  (void)device;
  if (call(SYNCHRONIZE, "synchronize"))
    return FAIL;
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do
    clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000000000l + now.tv_nsec - begin.tv_nsec < 20000);
  info->queue = NULL;
  return SUCCESS;
}

/// Copies, and waits for as long as the device's engine would take, which may have other copies to make first.
static void copy(int32_t device, void *to, void *from, int64_t size) {
  enum { DEVICES = 16, SECOND = 1000000000 };
  static int64_t free_at[DEVICES];
  int64_t speed = (int64_t)number("STANDIN_SPEED", 0), *engine = &free_at[device % DEVICES];
  if (!speed) {
    memcpy(to, from, size);
    return;
  }
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t end = now.tv_sec * SECOND + now.tv_nsec;
  pthread_mutex_lock(&lock);
  end = (end > *engine ? end : *engine) + size * 1000 / speed;
  *engine = end;
  pthread_mutex_unlock(&lock);
  memcpy(to, from, size);
  // Or the system would wake it 50 us late.
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &(struct timespec){end / SECOND, end % SECOND}, NULL);
}

int32_t __tgt_rtl_data_submit_async(int32_t device, void *to, void *from, int64_t size, AsyncInfo *info) {
  info->queue = info;
  if (call(SUBMIT, "submit"))
    return FAIL;
  count_pinned(FROM_PINNED, from, size);
  copy(device, contents(to, size), from, size);
  return SUCCESS;
}

int32_t __tgt_rtl_data_retrieve_async(int32_t device, void *to, void *from, int64_t size, AsyncInfo *info) {
  info->queue = info;
  if (call(RETRIEVE, "retrieve"))
    return FAIL;
  count_pinned(TO_PINNED, to, size);
  copy(device, to, contents(from, size), size);
  return SUCCESS;
}

int32_t __tgt_rtl_data_submit(int32_t device, void *to, void *from, int64_t size) {
  AsyncInfo info;
  int32_t status = __tgt_rtl_data_submit_async(device, to, from, size, &info);
  return status ? status : __tgt_rtl_synchronize(device, &info);
}

int32_t __tgt_rtl_data_retrieve(int32_t device, void *to, void *from, int64_t size) {
  AsyncInfo info;
  int32_t status = __tgt_rtl_data_retrieve_async(device, to, from, size, &info);
  return status ? status : __tgt_rtl_synchronize(device, &info);
}

/// Gives kernels access to the accelerator's memory, or takes it from the process.
static void open_memory(int change) {
  pthread_mutex_lock(&lock);
  int before = running, now = running += change;
  for (struct Block *b = blocks; (!before || !now) && b < blocks + BLOCKS; ++b)
    if (b->at && now)
      mmap(b->at, b->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, b->file, 0);
    else if (b->at)
      close_block(b);
  pthread_mutex_unlock(&lock);
}

int32_t __tgt_rtl_launch_kernel(int32_t device, void *kernel, void **args, ptrdiff_t *offsets, KernelArgs *launch,
                                AsyncInfo *info) {
  (void)device;
  typedef void (*Kernel)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                         void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
  info->queue = info;
  void *a[ARGUMENTS] = {0};
  if (call(LAUNCH, "launch") || launch->count > ARGUMENTS)
    return FAIL;
  counts()[TEAMS] = launch->teams[0], counts()[THREADS] = launch->threads[0];
  counts()[TRIPCOUNT] = launch->tripcount;
  for (uint32_t i = 0; i < launch->count; ++i)
    a[i] = (char *)args[i] + offsets[i];
  open_memory(1);
  // A function with fewer parameters ignores the others.
  ((Kernel)kernel)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15],
                   a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23]);
  open_memory(-1);
  return SUCCESS;
}
