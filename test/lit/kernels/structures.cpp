// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nested data: structures that point to structures, mapped by hand and by
// declared mappers, pointers attached, members alone; and what C++ makes of it:
// captured references, a lambda, a member function, a template.
//
// RUN: %clangxx %s -o %t
// RUN: %run2 %t

#include "offload.h"

struct Vector {
  int n;
  double *data;
};
#pragma omp declare mapper(Vector v) map(v, v.data[0 : v.n])

struct Pair {
  Vector left, right;
  int tag;
};
#pragma omp declare mapper(Pair p) map(p.tag, p.left, p.right)

static Vector make(int n, double first) {
  Vector v = {n, new double[n]};
  for (int i = 0; i < n; ++i)
    v.data[i] = first + i;
  return v;
}

// libomptarget 16 does not forget a structure that came through a mapper: these
// are not on the stack, where other data would follow at the same address.
static Vector all[3];
static Pair pair;

static void mappers(int d) {
  all[0] = make(10, 0);
  all[1] = make(1000, 100);
  all[2] = make(7, 5);
  double *kept = all[1].data;
#pragma omp target map(tofrom : all[0 : 3]) device(d)
  for (int k = 0; k < 3; ++k)
    for (int i = 0; i < all[k].n; ++i)
      all[k].data[i] *= 2;
  CHECK(all[1].data == kept);
  CHECK(all[0].data[9] == 18 && all[1].data[999] == 2198 &&
        all[2].data[6] == 22);

  pair = {all[0], all[1], 3};
#pragma omp target map(tofrom : pair) device(d)
  {
    pair.tag += pair.left.n;
    pair.left.data[0] = 1.5;
    pair.right.data[999] = pair.left.data[9];
  }
  CHECK(pair.tag == 13 && all[0].data[0] == 1.5 && all[1].data[999] == 18);
  for (Vector &v : all)
    delete[] v.data;
}

struct Node {
  int value;
  Node *next;
};

/// A linked list, mapped node by node; the pointers are attached on the device. (OpenMP
/// attaches one when it or what it points to is mapped anew.)
static void list(int d) {
  Node c = {3, nullptr}, b = {2, &c}, a = {1, &b};
  Node *pa = &a, *pb = &b, *pc = &c;
  int sum = 0;
#pragma omp target enter data map(to : pa[0 : 1]) device(d)
#pragma omp target enter data map(to : pa->next[0 : 1]) device(d)
#pragma omp target enter data map(to : pb->next[0 : 1]) device(d)
#pragma omp target map(tofrom : sum) map(pa[0 : 1]) device(d)
  for (Node *node = pa; node; node = node->next)
    sum += node->value++;
  CHECK(sum == 6);
#pragma omp target update from(pc->value) device(d)
  CHECK(c.value == 4);
#pragma omp target exit data map(release : pb->next[0 : 1]) device(d)
#pragma omp target exit data map(release : pa->next[0 : 1]) device(d)
#pragma omp target exit data map(delete : pa[0 : 1], pb[0 : 1], pc[0 : 1])     \
    device(d)
}

class Account {
  long balance = 7;
  int entries[100] = {0};

public:
  long book(int amount, int d) {
#pragma omp target map(tofrom : this[0 : 1]) device(d)
    {
      balance += amount;
      entries[99] = amount;
    }
    return balance + entries[99];
  }
};

template <typename T> T add(T a, T b, int d) {
  T sum{};
#pragma omp target map(from : sum) device(d)
  sum = a + b;
  return sum;
}

static void cpp(int d) {
  Account account;
  CHECK(account.book(3, d) == 13);
  CHECK(add(1.5f, 2.25f, d) == 3.75f && add(1L << 40, 1L, d) == (1L << 40) + 1);
  int x = 1;
  int &reference = x;
#pragma omp target map(tofrom : reference) device(d)
  reference += 1;
  auto region = [&](int by) {
#pragma omp target map(tofrom : x) device(d)
    x *= by;
  };
  region(21);
  CHECK(x == 42);
}

int main() {
  need_devices(2);
  for (int d = 0; d < 2; ++d) {
    mappers(d);
    list(d);
    cpp(d);
  }
  return 0;
}
