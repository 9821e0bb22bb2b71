// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a region allocates is the device's own: regions keep pointers to it in a structure of the program, later regions of the
// same device use what is there, let it grow and free it. Thread-local variables and errno are each side's own. (A thread-local
// variable that the region itself names is an error of the compiler.)
//
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: %plain-clang -shared -fPIC %S/Inputs/thread-local.c -o %t.dir/libown.so
// RUN: %clangxx %s -o %t -L%t.dir -lown -lpthread -Wl,-rpath,%t.dir
// RUN: %run2 %t 2> %t.err
// RUN: %line none %t.err
// REQUIRES: plugin

#include "unified.h"
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

enum { N = 100000 };

/// Only pointers: what they lead to is the device's.
struct Kept {
  long *numbers;
  char *text;
  std::vector<long> *list;
  std::string *word;
  long sum;
};

/// The calling thread's variable of the library.
extern "C" long *own(void);

/// The first region on a device allocates, the next ones use it.
static void memory(int device, Kept *kept) {
#pragma omp target device(device)
  {
    kept->numbers = new long[N];
    kept->text = static_cast<char *>(malloc(100));
    kept->list = new std::vector<long>(1, device);
    kept->word = new std::string("a word that is too long to be kept in the string");
    for (int i = 0; i < N; ++i)
      kept->numbers[i] = i + device;
    snprintf(kept->text, 100, "text of device %d", device);
  }
  Kept before = *kept;
  for (int round = 0; round < 3; ++round) {
#pragma omp target device(device) firstprivate(round)
    {
      // Some words of it, so that there is room for others between them.
      for (int i = 0; i < 1000; ++i)
        kept->list->push_back(round);
      kept->text = static_cast<char *>(realloc(kept->text, 100 << 4 * round));
      for (int i = round; i < N; i += 3)
        kept->numbers[i] *= 2;
      *kept->word += '.';
    }
  }
  CHECK(kept->numbers == before.numbers && kept->list == before.list && kept->word == before.word);
#pragma omp target device(device)
  {
    char expected[100];
    snprintf(expected, sizeof expected, "text of device %d", device);
    kept->sum = strcmp(kept->text, expected) == 0;
    for (int i = 0; i < N; ++i)
      kept->sum += kept->numbers[i] == 2 * (i + device);
    kept->sum += kept->list->size() == 3001 && kept->list->front() == device && kept->list->back() == 2;
    kept->sum += kept->word->size() == before.word->size() && kept->word->compare(kept->word->size() - 3, 3, "...") == 0;
    delete[] kept->numbers;
    free(kept->text);
    delete kept->list;
    delete kept->word;
    kept->numbers = nullptr;
  }
  CHECK(kept->sum == N + 3 && kept->numbers == nullptr);
}

/// By the library's function, which is called on each side.
static void thread_locals() {
  *own() = 5;
  errno = EDOM;
  long seen[2] = {0, 0}, *s = seen;
#pragma omp target
  {
    s[0] = *own();
    errno = 0;
    s[1] = strtol("99999999999999999999999", nullptr, 10) > 0 && errno == ERANGE;
    *own() = 40;
  }
  // EDOM is not kept for sure: libomptarget's own calls are the program's.
  CHECK(errno != ERANGE);
  CHECK(*own() == 5 && seen[0] != 5 && seen[1] == 1);
}

int main() {
  need_devices(2);
  Kept kept[2] = {};
  memory(0, &kept[0]);
  memory(1, &kept[1]);
  thread_locals();
  std::thread(thread_locals).join();
  return 0;
}
