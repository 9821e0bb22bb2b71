// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region reads and overwrites containers of the program by their addresses: nothing is mapped. What the program has
// changed before the next region is what that one sees.
//
// RUN: %clangxx %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

struct Tree {
  int value;
  std::unique_ptr<Tree> left, right;
};

static std::unique_ptr<Tree> plant(int low, int high) {
  if (low >= high)
    return nullptr;
  int middle = (low + high) / 2;
  return std::unique_ptr<Tree>(
      new Tree{middle, plant(low, middle), plant(middle + 1, high)});
}

#pragma omp declare target
static long sum_and_negate(Tree *t) {
  if (!t)
    return 0;
  long sum = t->value;
  t->value = -t->value;
  return sum + sum_and_negate(t->left.get()) + sum_and_negate(t->right.get());
}
#pragma omp end declare target

static void trees() {
  auto root = plant(0, 20000);
  Tree *tree = root.get();
  for (int sign : {1, -1}) {
    long sum = 0;
#pragma omp target map(from : sum)
    sum = sum_and_negate(tree);
    CHECK(sum == sign * 19999L * 20000 / 2);
  }
  CHECK(tree->value == 10000 && tree->left->value == 5000);
}

static void lists() {
  std::list<int> list(10000);
  std::iota(list.begin(), list.end(), 0);
  auto *l = &list;
  long sum = 0;
  for (int round = 0; round < 3; ++round) {
#pragma omp target map(from : sum)
    {
      sum = 0;
      for (int &value : *l) {
        sum += value;
        ++value;
      }
    }
    CHECK(sum == 9999L * 10000 / 2 + round * 20000L);
    // The program changes the nodes, and their order, between the regions.
    for (int &value : list)
      ++value;
    list.reverse();
    list.push_back(0);
    list.pop_front();
    list.back() = list.front() = 0;
    long wanted = 9999L * 10000 / 2 + (round + 1) * 20000L;
    list.back() = wanted - std::accumulate(list.begin(), list.end(), 0L);
  }
}

static void strings() {
  std::vector<std::string> words;
  for (int i = 0; i < 1000; ++i)
    words.push_back(i % 2 ? "short" : std::string(100 + i, 'a' + i % 26));
  auto *w = &words;
  size_t length = 0, found = 0;
#pragma omp target map(from : length, found)
  {
    length = found = 0;
    for (std::string &word : *w) {
      length += word.size();
      found += word == "short";
      word[0] = 'X';
    }
    (*w)[3].swap((*w)[4]);
  }
  size_t wanted = 0;
  for (int i = 0; i < 1000; ++i)
    wanted += i % 2 ? 5 : 100 + i;
  CHECK(length == wanted && found == 500);
  for (int i = 0; i < 1000; ++i)
    CHECK(words[i][0] == 'X');
  CHECK(words[4] == "Xhort" && words[3].size() == 104 && words[3][1] == 'e');
  // The program goes on with what the region has left.
  words[3].append(1000, 'y');
  words.erase(words.begin() + 3);
  CHECK(words[3] == "Xhort" && words.size() == 999);
}

static void maps() {
  std::map<std::string, std::vector<int>> map;
  for (int i = 0; i < 500; ++i)
    map["key " + std::to_string(i)].assign(i, i);
  auto *m = &map;
  int missing = 0;
  long sum = 0;
#pragma omp target map(from : missing, sum)
  {
    missing = m->count("no key");
    sum = 0;
    for (auto &entry : *m)
      for (int &value : entry.second)
        sum += value--;
    auto found = m->find("key 499");
    if (found != m->end())
      found->second[0] = 12345;
  }
  CHECK(missing == 0);
  long wanted = 0;
  for (long i = 0; i < 500; ++i)
    wanted += i * i;
  CHECK(sum == wanted);
  CHECK(map["key 499"][0] == 12345 && map["key 499"][1] == 498);
  CHECK(map["key 7"] == std::vector<int>(7, 6));
}

int main() {
  need_devices(1);
  trees();
  lists();
  strings();
  maps();
  return 0;
}
