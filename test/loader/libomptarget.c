// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//===----------------------------------------------------------------------===//
//
// Stands in for the libomptarget of LLVM 17 or 18, of which Debian 12 has no
// package: a shared library under its soname, which loads the plugin and calls
// it as that release does, in its order, and fails where that one would fail.
// Programs of clang 16 can be linked with it if their regions map plain
// variables: it has no target data, no mappers and no nowait.
//
//   cc -shared -fPIC -DRELEASE=18 -Wl,-soname,libomptarget.so.18.1 …
//
// It is stricter than LLVM in one thing: what goes wrong ends the program.
//
//   LOADER_DAMAGE=1   shows the plugin the first half of each image
//
//===----------------------------------------------------------------------===//

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...)                                                              \
  do {                                                                         \
    fprintf(stderr, "loader: " __VA_ARGS__);                                   \
    fputc('\n', stderr);                                                       \
    exit(1);                                                                   \
  } while (0)

//===----------------------------------------------------------------------===//
// What compiler, program and plugin pass
//===----------------------------------------------------------------------===//

typedef struct {
  void *address;
  char *name;
  size_t size; // 0: a kernel
  int32_t flags, reserved;
} Entry;

typedef struct {
  char *start, *end;
  Entry *entries, *entries_end;
} Image;

typedef struct {
  int32_t image_count;
  Image *images;
  Entry *entries, *entries_end;
} Program;

typedef struct {
  Entry *entries, *entries_end;
} Table;

typedef struct {
  uintptr_t handle;
} Binary;

typedef struct {
  void *queue;
  // Only the plugins of LLVM's own know what follows; this one must not touch it.
  char others[128];
} AsyncInfo;

typedef struct {
  uint32_t version, count;
  char **bases, **pointers;
  int64_t *sizes, *types;
  void **names, **mappers;
  uint64_t trip_count, flags;
  uint32_t teams[3], threads[3], group_memory;
} KernelArgs;

enum { TO = 1, FROM = 2, PARAMETER = 0x20, LITERAL = 0x100 };
/// The mapping kinds that this file knows: also always, private, implicit.
enum { KNOWN = TO | FROM | 4 | PARAMETER | 0x80 | LITERAL | 0x200 };

//===----------------------------------------------------------------------===//
// The plugin
//===----------------------------------------------------------------------===//

#if RELEASE == 17
static const char *const names[] = {"ppc64", "x86_64", "cuda", "aarch64", "amdgpu"};
/// The functions without which this release refuses a plugin.
static const char *const needed[] = {
    "is_valid_binary", "number_of_devices", "init_device",   "load_binary",
    "data_alloc",      "data_submit",       "data_retrieve", "data_delete",
    "launch_kernel"};
#elif RELEASE == 18
// A build of LLVM has those that it was made with; these are Debian's.
static const char *const names[] = {"x86_64", "cuda", "amdgpu"};
static const char *const needed[] = {
    "init_plugin",   "is_valid_binary", "number_of_devices", "init_device",
    "load_binary",   "get_global",      "get_function",      "data_alloc",
    "data_submit",   "data_retrieve",   "data_delete",       "launch_kernel"};
#else
#error "RELEASE must be 17 or 18"
#endif

static void *plugin;
static int device_count;
static int64_t requirements = 1; // none

/// The plugin's function of this name; null if it has none.
static void *function(const char *name) {
  char full[64];
  snprintf(full, sizeof full, "__tgt_rtl_%s", name);
  return dlsym(plugin, full);
}

/// CALL(name, (types), arguments…) calls a function that returns a status.
#define CALL(name, types, ...)                                                 \
  do {                                                                         \
    int32_t(*called) types = (int32_t(*) types)function(#name);                \
    if (!called)                                                               \
      FAIL("the plugin has no " #name);                                        \
    int32_t status = called(__VA_ARGS__);                                      \
    if (status != 0)                                                           \
      FAIL(#name " returned %d", status);                                      \
  } while (0)

/// Tries one plugin: true if it has devices.
static bool load_plugin(const char *name) {
  char file[64];
  snprintf(file, sizeof file, "libomptarget.rtl.%s.so", name);
  plugin = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  if (!plugin)
    return false;
#if RELEASE == 17 // before it looks at the rest, and only if there is one
  if (function("init_plugin"))
    CALL(init_plugin, (void), );
#endif
  for (size_t i = 0; i < sizeof needed / sizeof *needed; ++i)
    if (!function(needed[i]))
      FAIL("%s has no %s", file, needed[i]);
#if RELEASE == 18
  CALL(init_plugin, (void), );
#endif
  int32_t (*count)(void) = (int32_t(*)(void))function("number_of_devices");
  device_count = count();
  return device_count > 0;
}

__attribute__((constructor)) static void start(void) {
#if RELEASE == 17 // 18 loads plugins all the same
  const char *policy = getenv("OMP_TARGET_OFFLOAD");
  if (policy && strcasecmp(policy, "disabled") == 0)
    return;
#endif
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (load_plugin(names[i]))
      return;
  plugin = NULL;
}

//===----------------------------------------------------------------------===//
// Images
//===----------------------------------------------------------------------===//

enum { MAX_PROGRAMS = 4, MAX_DEVICES = 16 };

static struct {
  Program *program;
  Image image;                // the ELF file in the program's image
  Entry *loaded[MAX_DEVICES]; // its entries with a device's addresses
} known[MAX_PROGRAMS];
static int known_count;
static bool device_started[MAX_DEVICES];

/// The ELF file in an image of clang 16: behind a header that says where it is.
static Image unpack(Image image) {
  struct {
    uint32_t magic, version;
    uint64_t size, entry, entry_size;
  } head;
  struct {
    uint16_t kind, producer;
    uint32_t flags;
    uint64_t strings, string_count, image, image_size;
  } entry;
  memcpy(&head, image.start, sizeof head);
  if (head.magic == 0xad10ff10) {
    memcpy(&entry, image.start + head.entry, sizeof entry);
    image.start += entry.image;
    image.end = image.start + entry.image_size;
  }
  if (getenv("LOADER_DAMAGE"))
    image.end -= (image.end - image.start) / 2;
  return image;
}

static void start_device(int32_t device) {
  if (device_started[device])
    return;
  int64_t (*requires)(int64_t) = (int64_t(*)(int64_t))function("init_requires");
  int64_t status = requires ? requires(requirements) : 0;
  if (RELEASE >= 18 && (int32_t)status != 0)
    FAIL("init_requires returned %d: device %d would be left out", (int32_t)status, device);
  CALL(init_device, (int32_t), device);
#if RELEASE == 18 // it asks without a look whether there is such a function
  if (getenv("LIBOMPTARGET_RECORD")) {
    uint64_t offset;
    int32_t (*record)(int32_t, int64_t, void *, bool, bool, uint64_t *) =
        (int32_t(*)(int32_t, int64_t, void *, bool, bool, uint64_t *))function(
            "initialize_record_replay");
    record(device, 0, NULL, true, false, &offset);
  }
#endif
  device_started[device] = true;
}

void __tgt_register_requires(int64_t flags) { requirements = flags; }

void __tgt_register_lib(Program *program) {
  if (!plugin)
    return;
#if RELEASE == 17
  CALL(register_lib, (Program *), program);
#endif
  if (known_count == MAX_PROGRAMS || program->image_count != 1)
    FAIL("more libraries or images than this loader can take");
  known[known_count].program = program;
  known[known_count++].image = unpack(program->images[0]);

  // All are asked for again whenever one comes.
  for (int i = 0; i < known_count; ++i) {
    Image *image = &known[i].image;
#if RELEASE == 17
    struct {
      const char *arch;
    } info = {"x86-64"};
    int32_t (*valid)(Image *, void *) = (int32_t(*)(Image *, void *))function("is_valid_binary_info");
    if (!valid(image, &info))
      FAIL("is_valid_binary_info refuses an image");
#else
    int32_t (*valid)(Image *) = (int32_t(*)(Image *))function("is_valid_binary");
    if (!valid(image))
      FAIL("is_valid_binary refuses an image");
    for (int device = 0; device < device_count; ++device)
      start_device(device);
#endif
  }
}

void __tgt_unregister_lib(Program *program) {
  if (!plugin)
    return;
#if RELEASE == 17 // 18 tells plugins nothing at the end
  CALL(unregister_lib, (Program *), program);
#endif
  for (int i = 0; i < known_count; ++i)
    if (known[i].program == program)
      known[i] = known[--known_count];
}

/// Loads an image on a device: its entries with the addresses there.
static Entry *load(Image *image, int32_t device) {
  size_t count = image->entries_end - image->entries;
  Entry *entries = malloc((count + 1) * sizeof *entries);
#if RELEASE == 17
  Table *(*load_binary)(int32_t, void *) = (Table * (*)(int32_t, void *)) function("load_binary");
  Table *table = load_binary(device, image);
  if (!table)
    FAIL("load_binary returned no table");
  if (table->entries_end - table->entries != (ptrdiff_t)count)
    FAIL("load_binary's table has %td entries, not %zu", table->entries_end - table->entries, count);
  memcpy(entries, table->entries, count * sizeof *entries);
#else
  Binary binary = {0};
  CALL(load_binary, (int32_t, Image *, Binary *), device, image, &binary);
  memcpy(entries, image->entries, count * sizeof *entries);
  for (size_t i = 0; i < count; ++i)
    if (entries[i].size)
      CALL(get_global, (Binary, uint64_t, const char *, void **), binary,
           entries[i].size, entries[i].name, &entries[i].address);
    else
      CALL(get_function, (Binary, const char *, void **), binary,
           entries[i].name, &entries[i].address);
#endif
  return entries;
}

static void use_device(int64_t device) {
  if (device < 0 || device >= device_count || device_count > MAX_DEVICES)
    FAIL("device %d of %d", (int)device, device_count);
  start_device(device);
  for (int i = 0; i < known_count; ++i)
    if (!known[i].loaded[device])
      known[i].loaded[device] = load(&known[i].image, device);
}

/// A device's address of something in the program: of a kernel by its exact
/// address, of a global by any address in it. Null if there is none.
static char *find(const void *host, size_t size, int32_t device, bool kernel) {
  for (int i = 0; i < known_count; ++i) {
    const Entry *entry = known[i].program->entries;
    for (size_t n = 0; &entry[n] < known[i].program->entries_end; ++n) {
      char *there = known[i].loaded[device][n].address;
      ptrdiff_t at = (const char *)host - (char *)entry[n].address;
      if (kernel ? at == 0 && entry[n].size == 0
                 : at >= 0 && entry[n].size && at + size <= entry[n].size)
        return there + at;
    }
  }
  return NULL;
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

/// Copies to the device, then lets the queue wait for an event behind the copy, as
/// libomptarget does when it maps something.
static void submit(int32_t device, void *there, void *here, int64_t size, AsyncInfo *info) {
  void *event = NULL;
  CALL(data_submit_async, (int32_t, void *, void *, int64_t, AsyncInfo *), device,
       there, here, size, info);
  CALL(create_event, (int32_t, void **), device, &event);
  CALL(record_event, (int32_t, void *, AsyncInfo *), device, event, info);
  CALL(wait_event, (int32_t, void *, AsyncInfo *), device, event, info);
  CALL(destroy_event, (int32_t, void *), device, event);
}

/// What clang 16 calls for a region.
int __tgt_target_kernel(void *location, int64_t device, int32_t teams,
                        int32_t threads, void *host, KernelArgs *kernel) {
  (void)location, (void)teams, (void)threads;
  if (!plugin)
    return -1; // the region runs on the host
  if (device == -1)
    device = 0;
  use_device(device);
  void *entry = find(host, 0, device, true);
  if (!entry)
    FAIL("no kernel for a region");

  enum { MAX = 32 };
  void *args[MAX], *mapped[MAX] = {0};
  ptrdiff_t offsets[MAX];
  uint32_t count = 0;
  AsyncInfo info = {0};
  if (kernel->count > MAX)
    FAIL("%u arguments", kernel->count);
  for (uint32_t i = 0; i < kernel->count; ++i) {
    char *base = kernel->bases[i], *begin = kernel->pointers[i];
    int64_t type = kernel->types[i], size = kernel->sizes[i];
    if (type & ~(int64_t)KNOWN || !(type & PARAMETER) || (kernel->mappers && kernel->mappers[i]))
      FAIL("argument %u has a kind of mapping, %#lx, that this loader lacks", i, (long)type);
    if (type & LITERAL) {
      args[count] = base;
      offsets[count++] = 0;
      continue;
    }
    char *there = find(begin, size, device, false);
    if (!there) {
      void *(*alloc)(int32_t, int64_t, void *, int32_t) =
          (void *(*)(int32_t, int64_t, void *, int32_t))function("data_alloc");
      there = mapped[i] = alloc(device, size, begin, /*TARGET_ALLOC_DEFAULT=*/3);
      if (!there)
        FAIL("data_alloc returned nothing");
      if (type & TO)
        submit(device, there, begin, size, &info);
    }
    args[count] = there;
    offsets[count++] = base - begin;
  }

  KernelArgs launched = *kernel;
  launched.count = count;
  CALL(launch_kernel, (int32_t, void *, void **, ptrdiff_t *, KernelArgs *, AsyncInfo *),
       device, entry, args, offsets, &launched, &info);
  for (uint32_t i = 0; i < kernel->count; ++i)
    if (mapped[i] && kernel->types[i] & FROM)
      CALL(data_retrieve_async, (int32_t, void *, void *, int64_t, AsyncInfo *), device,
           kernel->pointers[i], mapped[i], kernel->sizes[i], &info);
  CALL(synchronize, (int32_t, AsyncInfo *), device, &info);
  if (info.queue)
    FAIL("synchronize left a queue behind");
  for (size_t i = 0; i < sizeof info.others; ++i)
    if (info.others[i])
      FAIL("the plugin wrote into what is not its own");
  for (uint32_t i = 0; i < kernel->count; ++i)
    if (mapped[i])
      CALL(data_delete, (int32_t, void *, int32_t), device, mapped[i], 3);
  return 0;
}

//===----------------------------------------------------------------------===//
// Routines of OpenMP; libomp asks for the first one
//===----------------------------------------------------------------------===//

int omp_get_num_devices(void) { return plugin ? device_count : 0; }

int omp_target_memcpy(void *to, const void *from, size_t size, size_t to_offset,
                      size_t from_offset, int to_device, int from_device) {
  AsyncInfo info = {0};
  char *target = (char *)to + to_offset, *source = (char *)from + from_offset;
  if (to_device == device_count) {
    CALL(data_retrieve, (int32_t, void *, void *, int64_t), from_device, target, source, size);
  } else if (from_device == device_count) {
    CALL(data_submit, (int32_t, void *, void *, int64_t), to_device, target, source, size);
  } else {
    int32_t (*can)(int32_t, int32_t) = (int32_t(*)(int32_t, int32_t))function("is_data_exchangable");
    if (!can(from_device, to_device))
      FAIL("devices can't copy to each other");
    CALL(data_exchange_async, (int32_t, void *, int32_t, void *, int64_t, AsyncInfo *),
         from_device, source, to_device, target, size, &info);
    CALL(synchronize, (int32_t, AsyncInfo *), from_device, &info);
  }
  return 0;
}

void *omp_target_alloc(size_t size, int device) {
  use_device(device);
  void *(*alloc)(int32_t, int64_t, void *, int32_t) =
      (void *(*)(int32_t, int64_t, void *, int32_t))function("data_alloc");
  return alloc(device, size, NULL, /*TARGET_ALLOC_DEVICE=*/0);
}

void omp_target_free(void *memory, int device) {
  CALL(data_delete, (int32_t, void *, int32_t), device, memory, 0);
}
