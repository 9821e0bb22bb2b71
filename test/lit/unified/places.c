// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory of every kind: globals with and without `declare target`, constants, string literals, the stacks of the main thread
// (also a deep one) and of another one, thread-local variables, environment and arguments, the C library's data.
//
// RUN: %clang %s -lpthread -o %t
// RUN: %run1 %t argument 2> %t.err
// RUN: %line none %t.err
// RUN: %clang -fPIE -pie %s -lpthread -o %t.pie
// RUN: %run1 %t.pie argument 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <pthread.h>

int global = 1;
static int local_global = 2;
static int zeroed[100000];
static const int constant[] = {3, 5, 7};
static struct {
  char *text;
  int *numbers;
} linked = {0, zeroed};
static _Thread_local int own = 11;
#pragma omp declare target
int declared = 20;
static int declared_here[3] = {30, 31, 32};
#pragma omp end declare target
int linked_to[1000];
#pragma omp declare target link(linked_to)
extern char **environ;

static void data(void) {
  static int in_function = 4;
  int *p[] = {&global, &local_global, &in_function, &zeroed[99999]};
  const int *c = constant;
#pragma omp target
  for (int i = 0; i < 4; ++i)
    *p[i] += c[i % 3];
  CHECK(global == 4 && local_global == 7 && in_function == 11);
  CHECK(zeroed[99999] == 3 && zeroed[0] == 0);
  // Named in the region, and reached through another one.
#pragma omp target
  {
    zeroed[2] = 8;
    linked.numbers[1] = zeroed[2] + 1;
  }
  CHECK(zeroed[2] == 8 && zeroed[1] == 9);
}

/// With `requires`, `declare target` variables are the program's own too.
static void declared_data(void) {
  long here[] = {(long)&declared, (long)declared_here, (long)linked_to};
  long there[3] = {0}, *t = there;
#pragma omp target
  {
    t[0] = (long)&declared;
    t[1] = (long)declared_here;
    t[2] = (long)linked_to;
    declared += declared_here[1];
    declared_here[2] = linked_to[999]++;
  }
  CHECK(memcmp(here, there, sizeof here) == 0);
  CHECK(declared == 51 && declared_here[2] == 0 && linked_to[999] == 1);
  declared = 5;
#pragma omp target
  linked_to[0] = declared;
  CHECK(linked_to[0] == 5);
}

static void texts(char **argv) {
  const char *literal = "a literal";
  char *argument = argv[1];
  char **e = environ;
  int equal = 0;
#pragma omp target map(from : equal)
  {
    equal = strcmp(literal, "a literal") == 0 && strcmp(argument, "argument") == 0;
    for (; *e; ++e)
      equal += strcmp(*e, "MARK=of the program") == 0;
    argument[0] = 'A';
  }
  CHECK(equal == 2 && strcmp(argv[1], "Argument") == 0);
}

/// Regions use the stack of a call far down.
static int deep(int n, int *top) {
  volatile char room[4096];
  room[0] = room[4095] = (char)n;
  if (n > 0)
    return deep(n - 1, top) + room[0] - room[4095];
  int here = 5, *p = &here;
  volatile char *r = room;
#pragma omp target
  {
    *top = *p;
    *p = 6;
    r[0] = r[4095] = 1;
  }
  return here;
}

static void stack(void) {
  int top = 0;
  CHECK(deep(1000, &top) == 6 && top == 5);
}

static void *thread(void *argument) {
  stack();
  own = 12;
  int *p = &own, *a = argument;
#pragma omp target
  *a = (*p)++;
  CHECK(own == 13);
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  setenv("MARK", "of the program", 1);
  need_devices(1);
  data();
  declared_data();
  texts(argv);
  stack();
  int result = 0, *p = &own;
  pthread_t other;
  CHECK(pthread_create(&other, NULL, thread, &result) == 0);
  CHECK(pthread_join(other, NULL) == 0);
  CHECK(result == 12);
#pragma omp target
  *p += 1;
  CHECK(own == 12);
  return 0;
}
