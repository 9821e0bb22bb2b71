// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of the soak: threads that do random things with all devices at the same
// time, each checking every result of its own. `run` beside this starts and watches it.
//
//   soak SECONDS SEED THREADS PROGRESS-FILE DIRECTORY-OF-LIBRARIES
//
// With -DUNIFIED most regions use the program's memory by its addresses.
//
// On each device one region stays open from the beginning to the end, unless -DUNIFIED: what is
// kept of the others until it is answered would be seen to grow.
//
// What a thread does is a function of seed and thread number alone, so a failure's line
// ("thread 3, step 71, chain") names a point that a second run passes again; only how the
// threads meet differs. Each operation is a function of its own: clang 16 takes stack for
// each region that one call of a function executes.

#ifdef UNIFIED
#pragma omp requires unified_shared_memory
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <list>
#include <mutex>
#include <numeric>
#include <omp.h>
#include <shared_mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#define OPERATION [[maybe_unused]] static __attribute__((noinline)) void

constexpr int MAX_THREADS = 64, LIBRARIES = 4, POOL = 16;
constexpr size_t LARGEST = 4 << 20;

static unsigned long seed;
static int devices;
static std::string libraries;
/// Exclusive while a library comes or goes: libomptarget 16 can forget a library that comes
/// while a region starts, with LLVM's host plugin too.
static std::shared_mutex opening;
/// How many operations each thread has done: a file that the watcher maps too.
static std::atomic<uint64_t> *progress;

/// Memory of a device that outlives the operation that took it.
struct Block {
  void *at = nullptr;
  size_t size = 0;
  int device = 0;
  unsigned content = 0;
};

/// Memory of the program, and what it has to hold.
struct Checked {
  unsigned char *at = nullptr;
  std::vector<unsigned char> wanted;
};

struct Thread {
  int number;
  uint64_t state, step = 0, printed = 0;
  const char *operation = "";
  Block pool[POOL];
  Checked own[4];
  unsigned char lines[64] = {};

  uint64_t next() {
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  /// One of 0..n.
  size_t below(size_t n) { return next() % n; }
  /// From 1 to `largest`, each order of magnitude as often.
  size_t size(size_t largest = LARGEST) {
    int bits = 64 - __builtin_clzll(largest);
    size_t n = 1 + below(size_t(1) << below(bits));
    return n < largest ? n : largest;
  }
  int device() { return int(below(devices)); }
};

[[noreturn]] static void wrong(Thread &t, const char *what, int line) {
  fprintf(stderr, "soak: wrong at line %d (%s): thread %d, step %lu, %s, seed %lu\n", line, what,
          t.number, (unsigned long)t.step, t.operation, seed);
  _exit(3); // the other threads are in the middle of things
}
#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition))                                                                              \
      wrong(t, #condition, __LINE__);                                                              \
  } while (0)

/// Byte i of content number c: without a period that a swapped piece could hide behind.
static inline unsigned char byte_of(size_t i, unsigned c) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + c * 0xbf58476d1ce4e5b9u;
  return (unsigned char)((x ^ (x >> 29)) >> 32);
}
static void fill(unsigned char *p, size_t n, unsigned c) {
  for (size_t i = 0; i < n; ++i)
    p[i] = byte_of(i, c);
}
static bool holds(const unsigned char *p, size_t n, unsigned c, unsigned char plus = 0) {
  size_t bad = 0;
  for (size_t i = 0; i < n; ++i)
    bad += p[i] != (unsigned char)(byte_of(i, c) + plus);
  return bad == 0;
}

OPERATION scalars(Thread &t) {
  long x = t.below(1000), a = t.below(1000), begin = x;
  double d = double(t.below(1000));
  char c = char(t.below(100));
#pragma omp target map(tofrom : x) firstprivate(a, d, c) device(t.device())
  x = 3 * x + a + long(d) - c;
  CHECK(x == 3 * begin + a + long(d) - c);
}

OPERATION array(Thread &t) {
  size_t n = t.size(), offset = t.below(64);
  unsigned content = unsigned(t.next());
  unsigned char plus = (unsigned char)t.next();
  std::vector<unsigned char> bytes(n + offset);
  unsigned char *p = bytes.data() + offset;
  fill(p, n, content);
#pragma omp target map(tofrom : p[0 : n]) device(t.device())
  for (size_t i = 0; i < n; ++i)
    p[i] += plus;
  CHECK(holds(p, n, content, plus));
}

struct Large {
  int values[700];
};
OPERATION by_value(Thread &t) {
  Large large;
  int first = int(t.below(1 << 20)), sum = 0;
  std::iota(large.values, large.values + 700, first);
#pragma omp target map(from : sum) firstprivate(large) device(t.device())
  {
    sum = 0;
    for (int v : large.values)
      sum += v - large.values[0];
  }
  CHECK(sum == 700 * 699 / 2);
}

/// Host to a device in pieces, on to another (or the same), and back.
OPERATION copies(Thread &t) {
  size_t n = t.size(), skew_a = t.below(64), skew_b = t.below(64);
  int a = t.device(), b = t.device(), host = omp_get_initial_device();
  unsigned content = unsigned(t.next());
  std::vector<unsigned char> there(n), back(n + 1, 0xee);
  fill(there.data(), n, content);
  void *on_a = omp_target_alloc(n + skew_a, a), *on_b = omp_target_alloc(n + skew_b, b);
  CHECK(on_a && on_b);
  for (size_t at = 0; at < n;) {
    size_t piece = 1 + t.below(n - at);
    CHECK(omp_target_memcpy(on_a, there.data(), piece, skew_a + at, at, a, host) == 0);
    at += piece;
  }
  CHECK(omp_target_memcpy(on_b, on_a, n, skew_b, skew_a, b, a) == 0);
  CHECK(omp_target_memcpy(back.data(), on_b, n, 0, skew_b, host, b) == 0);
  CHECK(holds(back.data(), n, content) && back[n] == 0xee);
  omp_target_free(on_a, a);
  omp_target_free(on_b, b);
}

OPERATION rectangle(Thread &t) {
  size_t rows = 1 + t.below(20), columns = 1 + t.below(300);
  size_t whole[2] = {rows + 3, columns + 5}, part[2] = {rows, columns};
  size_t from[2] = {t.below(4), t.below(6)}, to[2] = {0, 0};
  int d = t.device(), host = omp_get_initial_device();
  unsigned content = unsigned(t.next());
  std::vector<unsigned char> there(whole[0] * whole[1]), back(rows * columns);
  fill(there.data(), there.size(), content);
  void *p = omp_target_alloc(rows * columns, d);
  CHECK(p);
  CHECK(omp_target_memcpy_rect(p, there.data(), 1, 2, part, to, from, part, whole, d, host) == 0);
  CHECK(omp_target_memcpy(back.data(), p, back.size(), 0, 0, host, d) == 0);
  for (size_t r = 0; r < rows; ++r)
    CHECK(memcmp(&back[r * columns], &there[(r + from[0]) * whole[1] + from[1]], columns) == 0);
  omp_target_free(p, d);
}

/// Takes, looks at and gives back memory that lives for many steps.
OPERATION pool(Thread &t) {
  Block &block = t.pool[t.below(POOL)];
  int host = omp_get_initial_device();
  if (block.at) {
    std::vector<unsigned char> back(block.size);
    CHECK(omp_target_memcpy(back.data(), block.at, block.size, 0, 0, host, block.device) == 0);
    CHECK(holds(back.data(), block.size, block.content));
    omp_target_free(block.at, block.device);
    block.at = nullptr;
    return;
  }
  block = {nullptr, t.size(1 << 20), t.device(), unsigned(t.next())};
  block.at = omp_target_alloc(block.size, block.device);
  CHECK(block.at);
  unsigned char *p = (unsigned char *)block.at;
  size_t n = block.size;
  unsigned content = block.content;
#pragma omp target is_device_ptr(p) device(block.device)
  for (size_t i = 0; i < n; ++i)
    p[i] = byte_of(i, content);
}

OPERATION many_allocations(Thread &t) {
  int d = t.device(), n = 1 + int(t.below(40));
  std::vector<void *> all(n);
  for (void *&p : all)
    CHECK((p = omp_target_alloc(t.size(1 << 18), d)));
  for (; n > 0; --n) {
    size_t i = t.below(n);
    omp_target_free(all[i], d);
    all[i] = all[n - 1];
  }
}

/// Deferred regions on one device, ordered per element.
OPERATION chain(Thread &t) {
  long v[3] = {1, 2, 3}, expected[3] = {1, 2, 3};
  int d = t.device(), length = 1 + int(t.below(8));
#pragma omp target enter data map(to : v[0 : 3]) device(d)
  for (int i = 0; i < length; ++i) {
    int k = int(t.below(3));
    long a = 1 + t.below(5);
    expected[k] = expected[k] * a + i;
#pragma omp target nowait depend(inout : v[k]) map(tofrom : v[0 : 3]) firstprivate(a, i, k) device(d)
    v[k] = v[k] * a + i;
  }
#pragma omp taskwait
#pragma omp target exit data map(from : v[0 : 3]) device(d)
  CHECK(memcmp(v, expected, sizeof v) == 0);
}

/// A value that goes from device to device, deferred all the way.
OPERATION journey(Thread &t) {
  long x = long(t.below(100)), expected = x;
  int hops = 1 + int(t.below(6));
  for (int i = 0; i < hops; ++i) {
    long a = long(t.below(1000));
    expected = 2 * expected + a;
#pragma omp target nowait depend(inout : x) map(tofrom : x) firstprivate(a) device(t.device())
    x = 2 * x + a;
  }
#pragma omp taskwait
  CHECK(x == expected);
}

/// Deferred copies and a region between them.
OPERATION deferred_data(Thread &t) {
  size_t n = t.size(1 << 18);
  int d = t.device();
  unsigned content = unsigned(t.next());
  std::vector<unsigned char> bytes(n);
  unsigned char *p = bytes.data();
  fill(p, n, content);
#pragma omp target enter data map(to : p[0 : n]) nowait depend(out : bytes) device(d)
#pragma omp target nowait depend(inout : bytes) map(tofrom : p[0 : n]) device(d)
  for (size_t i = 0; i < n; ++i)
    p[i] += 7;
#pragma omp target exit data map(from : p[0 : n]) nowait depend(inout : bytes) device(d)
#pragma omp taskwait
  CHECK(holds(p, n, content, 7));
}

OPERATION reductions(Thread &t) {
  int n = int(t.size(20000)), d = t.device();
  std::vector<int> values(n);
  long sum = 0, expected = 0;
  int largest = -1, expected_largest = -1;
  for (int &v : values) {
    v = int(t.below(1 << 20));
    expected += v;
    expected_largest = v > expected_largest ? v : expected_largest;
  }
  int *p = values.data();
#pragma omp target teams distribute parallel for reduction(+ : sum) map(to : p[0 : n])               \
    map(tofrom : sum) device(d)
  for (int i = 0; i < n; ++i)
    sum += p[i];
#pragma omp target parallel for reduction(max : largest) map(to : p[0 : n]) map(tofrom : largest)    \
    device(d)
  for (int i = 0; i < n; ++i)
    largest = p[i] > largest ? p[i] : largest;
  CHECK(sum == expected && largest == expected_largest);
}

/// Regions and updates of parts within `target data`.
OPERATION environment(Thread &t) {
  size_t n = 2 + t.size(1 << 18), cut = 1 + t.below(n - 1);
  int d = t.device();
  unsigned content = unsigned(t.next());
  std::vector<unsigned char> in(n), out(n), other(n);
  unsigned char *a = in.data(), *b = out.data(), *c = other.data();
  fill(a, n, content);
#pragma omp target data map(to : a[0 : n]) map(from : b[0 : n]) map(alloc : c[0 : n]) device(d)
  {
#pragma omp target device(d)
    for (size_t i = 0; i < n; ++i)
      c[i] = a[i] + 1;
    fill(a, cut, content + 1);
#pragma omp target update to(a[0 : cut]) device(d)
#pragma omp target device(d)
    for (size_t i = 0; i < n; ++i)
      b[i] = a[i] + 2;
#pragma omp target update from(c[cut : n - cut]) device(d)
  }
  CHECK(holds(b, cut, content + 1, 2));
  for (size_t i = cut; i < n; ++i)
    CHECK(b[i] == (unsigned char)(byte_of(i, content) + 2) &&
          c[i] == (unsigned char)(byte_of(i, content) + 1));
}

OPERATION associated(Thread &t) {
  size_t n = t.size(1 << 18);
  int d = t.device();
  unsigned content = unsigned(t.next());
  std::vector<unsigned char> bytes(n);
  unsigned char *p = bytes.data();
  void *there = omp_target_alloc(n, d);
  CHECK(there && omp_target_associate_ptr(p, there, n, 0, d) == 0);
#pragma omp target map(tofrom : p[0 : n]) device(d)
  for (size_t i = 0; i < n; ++i)
    p[i] = byte_of(i, content);
#pragma omp target update from(p[0 : n]) device(d)
  CHECK(omp_target_is_present(p, d) && omp_target_disassociate_ptr(p, d) == 0);
  omp_target_free(there, d);
  CHECK(holds(p, n, content));
}

struct Span {
  uintptr_t base, end;
};
static int add_span(dl_phdr_info *info, size_t, void *span) {
  auto *s = static_cast<Span *>(span);
  for (int i = 0; info->dlpi_addr == s->base && i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      s->end = std::max(s->end, s->base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
  return 0;
}

/// Closes a library; where it was, nothing ever is again: libomptarget 15 to 17 do not find
/// the regions of a library that comes to where another was, if a third came between, with
/// LLVM's host plugin too.
static bool close_for_ever(void *handle, void *function) {
  Dl_info info;
  if (!dladdr(function, &info))
    return false;
  Span span = {reinterpret_cast<uintptr_t>(info.dli_fbase), 0};
  dl_iterate_phdr(add_span, &span);
  if (dlclose(handle) != 0)
    return false;
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  for (uintptr_t at = span.base; at < span.end; at += page)
    mmap(reinterpret_cast<void *>(at), page, PROT_NONE, flags, -1, 0); // not if it is still open
  return true;
}

/// A library with regions comes, is used, and goes, unless another thread has it too.
OPERATION library(Thread &t) {
  int which = int(t.below(LIBRARIES));
  std::string path = libraries + "/libpart" + std::to_string(which) + ".so";
  opening.lock();
  void *handle = dlopen(path.c_str(), RTLD_NOW);
  opening.unlock();
  if (!handle)
    fprintf(stderr, "%s\n", dlerror());
  CHECK(handle);
  opening.lock_shared();
  auto name = "part" + std::to_string(which) + "_apply";
  auto apply = (long (*)(int, long))dlsym(handle, name.c_str());
  CHECK(apply);
  for (size_t uses = 1 + t.below(3); uses > 0; --uses) {
    long x = long(t.below(1000));
    CHECK(apply(t.device(), x) == x * (which + 2) + 10 * (which + 1));
  }
  opening.unlock_shared();
  std::lock_guard closing(opening);
  CHECK(close_for_ever(handle, (void *)apply));
}

/// Lines that the watcher expects to see, each once.
OPERATION print(Thread &t) {
  int number = t.number;
  unsigned long line = t.printed++;
#pragma omp target firstprivate(number, line) device(t.device())
  printf("line %d %lu\n", number, line);
}

// ---- the program's memory ------------------------------------------------------------

/// 64 lines of 64 bytes for each thread, between those of the other threads.
static unsigned char lines[64][MAX_THREADS][64];

static uint64_t hash_of(const unsigned char *p, size_t n, size_t step) {
  uint64_t hash = n;
  for (size_t i = 0; i < n; i += step)
    hash = (hash ^ p[i]) * 0x9e3779b97f4a7c15u;
  return hash;
}

/// Memory that the thread has kept, or new memory, perhaps where other memory was.
static Checked &checked(Thread &t) {
  Checked &own = t.own[t.below(4)];
  if (!own.at || t.below(10) == 0) {
    free(own.at);
    own.wanted.resize(t.size(1 << 20));
    own.at = (unsigned char *)malloc(own.wanted.size());
    fill(own.wanted.data(), own.wanted.size(), unsigned(t.next()));
    memcpy(own.at, own.wanted.data(), own.wanted.size());
  }
  for (size_t n = t.below(4); n > 0; --n) {
    size_t i = t.below(own.wanted.size());
    own.at[i] = own.wanted[i] = (unsigned char)t.next();
  }
  return own;
}

/// A region reads what the program has written; sometimes it stays for a while, and reads that again.
OPERATION read_own(Thread &t) {
  Checked &own = checked(t);
  size_t n = own.wanted.size(), step = 1 + t.below(600);
  unsigned wait = t.below(4) ? 0 : unsigned(t.below(3000));
  const unsigned char *p = own.at;
  uint64_t expected = hash_of(own.wanted.data(), n, step), seen[2] = {};
#pragma omp target firstprivate(p, n, step, wait) map(tofrom : seen) device(t.device())
  {
    seen[0] = seen[1] = hash_of(p, n, step);
    if (wait) {
      usleep(wait);
      seen[1] = hash_of(p, n, step);
    }
  }
  CHECK(seen[0] == expected && seen[1] == expected);
}

/// A region changes a part.
OPERATION write_own(Thread &t) {
  Checked &own = checked(t);
  size_t n = own.wanted.size(), from = t.below(n), most = n - from;
  size_t len = 1 + t.below(t.below(4) ? std::min(most, size_t(5000)) : most);
  unsigned char plus = (unsigned char)t.next(), *p = own.at + from;
#pragma omp target firstprivate(p, len, plus) device(t.device())
  for (size_t i = 0; i < len; ++i)
    p[i] += plus;
  for (size_t i = 0; i < len; ++i)
    own.wanted[from + i] += plus;
  CHECK(memcmp(own.at, own.wanted.data(), n) == 0);
}

/// Two regions change a half each.
OPERATION halves(Thread &t) {
  Checked &own = checked(t);
  size_t n = own.wanted.size(), half = t.below(n + 1);
  unsigned char plus = (unsigned char)t.next(), *p = own.at;
  int a = t.device(), b = t.device();
#pragma omp target nowait firstprivate(p, half, plus) device(a)
  for (size_t i = 0; i < half; ++i)
    p[i] += plus;
#pragma omp target nowait firstprivate(p, half, n, plus) device(b)
  for (size_t i = half; i < n; ++i)
    p[i] ^= plus;
#pragma omp taskwait
  for (size_t i = 0; i < n; ++i)
    own.wanted[i] = i < half ? own.wanted[i] + plus : own.wanted[i] ^ plus;
  CHECK(memcmp(own.at, own.wanted.data(), n) == 0);
}

/// A thread's lines in pages that all threads use.
OPERATION common_pages(Thread &t) {
  auto mine = &lines[0][t.number][0];
  size_t by_program = t.below(64), by_region = t.below(64);
  mine[by_program * sizeof lines[0] + 1] = t.lines[by_program] = (unsigned char)t.next();
  unsigned char seen[64], *s = seen, before = t.lines[by_region];
#pragma omp target firstprivate(mine, s, by_region) device(t.device())
  {
    for (size_t i = 0; i < 64; ++i)
      s[i] = mine[i * sizeof lines[0] + 1];
    mine[by_region * sizeof lines[0] + 1] += 3;
  }
  CHECK(memcmp(seen, t.lines, sizeof seen) == 0);
  t.lines[by_region] = before + 3;
  for (size_t i = 0; i < 64; ++i)
    CHECK(mine[i * sizeof lines[0] + 1] == t.lines[i]);
}

static constexpr struct Operation {
  const char *name;
  void (*run)(Thread &);
  unsigned weight;
} OPERATIONS[] = {
#ifdef UNIFIED
    {"read", read_own, 30},           {"write", write_own, 20},
    {"halves", halves, 5},            {"common pages", common_pages, 30},
    {"scalars", scalars, 5},          {"array", array, 5},
    {"by value", by_value, 5},        {"chain", chain, 5},
    {"journey", journey, 5},          {"reductions", reductions, 4},
    {"print", print, 2},
#else
    {"scalars", scalars, 20},         {"array", array, 15},
    {"by value", by_value, 5},        {"copies", copies, 15},
    {"rectangle", rectangle, 3},      {"pool", pool, 20},
    {"allocations", many_allocations, 5}, {"chain", chain, 10},
    {"journey", journey, 10},         {"deferred data", deferred_data, 8},
    {"reductions", reductions, 4},    {"environment", environment, 8},
    {"associated", associated, 5},    {"library", library, 1},
    {"print", print, 2},
#endif
};

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

static void work(Thread &t, double end) {
  unsigned all = 0;
  for (auto &o : OPERATIONS)
    all += o.weight;
  for (; now() < end; ++t.step) {
    size_t pick = t.below(all);
    const Operation *o = OPERATIONS;
    while (pick >= o->weight)
      pick -= o++->weight;
    t.operation = o->name;
    if (o->run == library) {
      o->run(t); // takes the lock in turns
    } else {
      std::shared_lock lock(opening);
      o->run(t);
    }
    progress[t.number].store(t.step + 1, std::memory_order_relaxed);
  }
  for (Block &block : t.pool)
    if (block.at)
      omp_target_free(block.at, block.device);
}

/// A region that runs until the program says so, by a flag in the device's memory. Another one
/// says that the region has begun: no library must come before that, see `opening`.
class OpenRegion {
  enum { GO, BEGUN, FLAGS };
  int device, *flags;
  std::thread thread;

  static void check(bool right) {
    if (!right) {
      fprintf(stderr, "soak: wrong: the region that stays open\n");
      _exit(3);
    }
  }

  void copy(int *to, int to_device, const int *from, int from_device) {
    check(omp_target_memcpy(to, from, FLAGS * sizeof(int), 0, 0, to_device, from_device) == 0);
  }

  void run() {
    int *f = flags, rounds = 0;
#pragma omp target is_device_ptr(f) map(tofrom : rounds) device(device)
    {
      f[BEGUN] = 1;
      for (; __atomic_load_n(&f[GO], __ATOMIC_ACQUIRE); ++rounds)
        usleep(1000);
    }
    check(rounds > 0);
  }

public:
  explicit OpenRegion(int d) : device(d), flags((int *)omp_target_alloc(FLAGS * sizeof(int), d)) {
    int now[FLAGS] = {1, 0}, host = omp_get_initial_device();
    check(flags);
    copy(flags, device, now, host);
    thread = std::thread(&OpenRegion::run, this);
    for (; !now[BEGUN]; usleep(1000))
      copy(now, host, flags, device);
  }
  void end() {
    int now[FLAGS] = {0, 1};
    copy(flags, device, now, omp_get_initial_device());
    thread.join();
    omp_target_free(flags, device);
  }
};

int main(int argc, char **argv) {
  if (argc != 6)
    return 2;
  double end = now() + atof(argv[1]);
  seed = strtoul(argv[2], nullptr, 10);
  int threads = atoi(argv[3]);
  libraries = argv[5];
  size_t bytes = MAX_THREADS * sizeof(uint64_t);
  int file = open(argv[4], O_RDWR);
  void *page = file < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED || threads < 1 || threads > MAX_THREADS)
    return 2;
  progress = static_cast<std::atomic<uint64_t> *>(page);
  devices = omp_get_num_devices();
  if (devices < 1)
    return 2;

  std::list<OpenRegion> open_regions;
#ifndef UNIFIED // There the last region that ends leaves other work than each that ends beside others.
  for (int d = 0; d < devices; ++d)
    open_regions.emplace_back(d);
#endif
  std::vector<Thread> all(threads);
#pragma omp parallel num_threads(threads)
  {
    Thread &t = all[omp_get_thread_num()];
    t.number = omp_get_thread_num();
    t.state = seed * 1000003 + unsigned(t.number);
    work(t, end);
  }
  for (OpenRegion &region : open_regions)
    region.end();
  uint64_t steps = 0;
  for (Thread &t : all) {
    steps += t.step;
    fprintf(stderr, "soak: thread %d printed %lu\n", t.number, (unsigned long)t.printed);
  }
  fprintf(stderr, "soak: %lu steps by %d threads on %d devices\n", (unsigned long)steps, threads, devices);
}
