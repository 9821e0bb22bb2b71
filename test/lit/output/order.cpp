// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What host and regions print comes in the order of the program, through a pipe
// as through a file, whichever way it is written: printf, puts, cout, write; and
// on stderr: fprintf, cerr, write. No region flushes.
//
// RUN: %clangxx %s -o %t
// RUN: %run2 %t > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefix=OUT
// RUN: FileCheck %s --input-file %t.err --check-prefix=ERR
// RUN: %run2 %t 2> %t.err | FileCheck %s --check-prefix=OUT
// RUN: FileCheck %s --input-file %t.err --check-prefix=ERR
// RUN: %run --ranks hdd %t 2> %t.err | FileCheck %s --check-prefix=OUT
//
// OUT:      {{^}}1 host printf
// OUT-NEXT: {{^}}2 device printf
// OUT-NEXT: {{^}}3 device puts
// OUT-NEXT: {{^}}4 host puts
// OUT-NEXT: {{^}}5 other device cout
// OUT-NEXT: {{^}}6 host cout
// OUT-NEXT: {{^}}7 device write
// OUT-NEXT: {{^}}8 host printf, 9 device printf, 10 host printf
// OUT-NEXT: {{^}}11 device 0
// OUT-NEXT: {{^}}12 device 1
// OUT-NEXT: {{^}}13 device 0
// OUT-NEXT: {{^}}14 device 1
// OUT-NEXT: {{^}}15 last
//
// ERR:      {{^}}1 host fprintf
// ERR-NEXT: {{^}}2 device fprintf
// ERR-NEXT: {{^}}3 host cerr
// ERR-NEXT: {{^}}4 other device cerr
// ERR-NEXT: {{^}}5 device write
// ERR-NEXT: {{^}}6 host fprintf

#include "offload.h"
#include <iostream>

// Named in a region itself, stderr or cout would be mapped like any variable of
// the host's: these use the device's own.
#pragma omp declare target
static void to_stderr(const char *line) { fprintf(stderr, "%s\n", line); }
static void to_cout(const char *line) { std::cout << line << std::endl; }
static void to_cerr(const char *line) { std::cerr << line << "\n"; }
#pragma omp end declare target

int main() {
  need_devices(2);
  printf("1 host printf\n");
  fprintf(stderr, "1 host fprintf\n");
#pragma omp target
  {
    printf("2 device printf\n");
    to_stderr("2 device fprintf");
    puts("3 device puts");
  }
  puts("4 host puts");
  std::cerr << "3 host cerr\n";
#pragma omp target device(1)
  {
    to_cout("5 other device cout");
    to_cerr("4 other device cerr");
  }
  std::cout << "6 host cout\n";
#pragma omp target
  {
    int ok = write(1, "7 device write\n", 15) == 15;
    ok &= write(2, "5 device write\n", 15) == 15;
    if (!ok)
      abort();
  }
  fprintf(stderr, "6 host fprintf\n");
  printf("8 host printf, ");
#pragma omp target
  printf("9 device printf, ");
  printf("10 host printf\n");
  for (int i = 0; i < 4; ++i) {
#pragma omp target device(i % 2) firstprivate(i)
    printf("%d device %d\n", 11 + i, i % 2);
  }
#pragma omp target
  printf("15 last\n");
  return 0;
}
