// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// globals: data that lives on the devices, in C++.
//
//   clang++-16 -O2 -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu globals.cpp -o globals
//   llvm-offload-mpirun -n 2 ./globals
//
// A `declare target` global exists once in the host and once on every device,
// each with a value of its own; its constructor runs on each device. Here every
// device keeps a histogram of the words it was given; the host fetches them with
// `target update` and joins them.

#include <cstdio>
#include <cstring>
#include <omp.h>
#include <unistd.h>

#pragma omp declare target
/// Counts words by their length.
class Histogram {
public:
  static constexpr int longest = 15;

  Histogram() : label(7) {}
  void add(int length) { ++count[length < longest ? length : longest]; }

  long count[longest + 1] = {};
  int label; // set by the constructor, on every device too
};

Histogram histogram;

/// Settings that the host sends to every device: shorter words do not count.
int shortest = 1;
#pragma omp end declare target

static const char text[] =
    "the quick brown fox jumps over the lazy dog while an offloading program "
    "distributes interdependent computations amongst unsuspecting machines";

/// Counts the words of text[first..end) on one device. A word counts where it
/// begins.
static void count_words(int device, int first, int end) {
#pragma omp target map(to : text) device(device)
  for (int i = first; i < end; ++i)
    if (text[i] != ' ' && (i == 0 || text[i - 1] == ' ')) {
      int length = 0;
      while (text[i + length] && text[i + length] != ' ')
        ++length;
      if (length >= shortest)
        histogram.add(length);
    }
}

int main() {
  const int devices = omp_get_num_devices();
  const int size = static_cast<int>(std::strlen(text));
  if (devices < 1) {
    std::fprintf(stderr, "globals: no device\n");
    return 2;
  }

  shortest = 3;
  for (int d = 0; d < devices; ++d) {
#pragma omp target update to(shortest) device(d)
    count_words(d, size * d / devices, size * (d + 1) / devices);
  }

  // Fetch every device's histogram into the host's own, one after the other.
  long total[Histogram::longest + 1] = {};
  bool right = histogram.label == 7;
  for (int d = 0; d < devices; ++d) {
    int pid = 0;
#pragma omp target map(from : pid) device(d)
    pid = getpid();
#pragma omp target update from(histogram) device(d)
    long words = 0;
    for (int length = 0; length <= Histogram::longest; ++length) {
      words += histogram.count[length];
      total[length] += histogram.count[length];
    }
    right = right && histogram.label == 7;
    std::printf("device %d: pid %d, %ld words\n", d, pid, words);
  }

  // The same in the host, with a histogram that no device has.
  Histogram expected;
  for (const char *word = text; *word;) {
    const int length = static_cast<int>(std::strcspn(word, " "));
    if (length >= shortest)
      expected.add(length);
    word += length + (word[length] != 0);
  }
  for (int length = 0; length <= Histogram::longest; ++length)
    right = right && total[length] == expected.count[length];
  std::printf("result: %s\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
}
