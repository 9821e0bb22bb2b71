// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region calls through pointers of the program: virtual functions of its objects, function pointers in its
// structures, a std::function, and lambdas that capture by reference. The functions of the image run.
//
// RUN: %clangxx %s -o %t
// RUN: %run1 %t 2> %t.err
// RUN: %line none %t.err
// RUN: %clangxx -fPIE -pie %s -o %t.pie
// RUN: %run1 %t.pie 2> %t.err
// RUN: %line none %t.err

#include "unified.h"
#include <functional>
#include <memory>
#include <vector>

#pragma omp declare target
struct Shape {
  virtual ~Shape() {}
  virtual int area() const = 0;
  virtual void grow(int by) = 0;
};

struct Square : Shape {
  int side;
  explicit Square(int side) : side(side) {}
  int area() const override;
  void grow(int by) override { side += by; }
};

int Square::area() const { return side * side; }

// A second base: its functions are reached through thunks.
struct Named {
  virtual const char *name() const = 0;
  virtual ~Named() {}
};

struct Rectangle : Named, Shape {
  int width, height;
  Rectangle(int w, int h) : width(w), height(h) {}
  int area() const override;
  void grow(int by) override { width += by, height += by; }
  const char *name() const override { return "rectangle"; }
};

// With this function the compiler puts the class's table, and so its other functions, into the image.
int Rectangle::area() const { return width * height; }

// Only this file sees them. Without a call in a region the compiler would drop them.
[[gnu::used]] static int twice(int x) { return 2 * x; }
[[gnu::used]] static int next(int x) { return x + 1; }
int exported(int x) { return x * 100; }
namespace {
[[gnu::used]] int hidden(int x) { return -x; }
} // namespace
#pragma omp end declare target

struct Entry {
  int (*function)(int);
  int argument, result;
};

int main() {
  need_devices(1);

  std::vector<std::unique_ptr<Shape>> shapes;
  for (int i = 1; i <= 100; ++i) {
    if (i % 2)
      shapes.emplace_back(new Square(i));
    else
      shapes.emplace_back(new Rectangle(i, 2 * i));
  }
  auto *all = &shapes;
  long area = 0;
#pragma omp target map(from : area)
  {
    area = 0;
    for (auto &shape : *all) {
      area += shape->area();
      shape->grow(1);
    }
  }
  long wanted = 0, after = 0;
  for (int i = 1; i <= 100; ++i) {
    wanted += i % 2 ? i * i : 2 * i * i;
    after += i % 2 ? (i + 1) * (i + 1) : (i + 1) * (2 * i + 1);
  }
  CHECK(area == wanted);
  for (auto &shape : shapes)
    after -= shape->area();
  CHECK(after == 0);

  Entry table[] = {
      {twice, 21, 0}, {next, 6, 0}, {exported, 3, 0}, {hidden, 5, 0}};
  Entry *entries = table;
#pragma omp target
  for (int round = 0; round < 1000; ++round)
    for (int i = 0; i < 4; ++i)
      entries[i].result = entries[i].function(entries[i].argument);
  CHECK(table[0].result == 42 && table[1].result == 7);
  CHECK(table[2].result == 300 && table[3].result == -5);

  int factor = 3;
  static int values[1000];
  int *captured = values;
  for (int &value : values)
    value = 2;
  auto scale = [&factor, captured](int i) { captured[i] *= factor; };
#pragma omp target
  for (int i = 0; i < 1000; ++i)
    scale(i);
  CHECK(values[0] == 6 && values[999] == 6);
  factor = 5;
#pragma omp target
  {
    scale(0);
    captured[1] = factor;
  }
  CHECK(values[0] == 30 && values[1] == 5);

  Rectangle rectangle(2, 3);
  Named *named = &rectangle;
  char first = 0;
#pragma omp target map(from : first)
  first = named->name()[0];
  CHECK(first == 'r');
  return 0;
}
