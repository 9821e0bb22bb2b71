// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An exception that no kernel catches is told with its type, from a thread of the kernel's
// team too; what it says is printed as ever.
//
// RUN: %clangxx %s -o %t
// RUN: %fails %t error 2> %t.err
// RUN: %tells "SIGABRT .an exception escaped: std::runtime_error"
// RUN: FileCheck %s --input-file %t.err
// RUN: %fails %t own 2> %t.err
// RUN: %tells "SIGABRT .an exception escaped: Own"
// RUN: %fails %t team 2> %t.err
// RUN: %tells "SIGABRT .an exception escaped: int"
// RUN: %fails %t none 2> %t.err
// RUN: %tells "SIGABRT .std::terminate was called"
//
// CHECK: what(): no way

#include "offload.h"
#include <exception>
#include <stdexcept>

#pragma omp declare target
struct Own {};
#pragma omp end declare target

int main(int argc, char **argv) {
  need_devices(2);
  char how = argv[argc - 1][0];
#pragma omp target firstprivate(how) device(1)
  {
    if (how == 'e')
      throw std::runtime_error("no way");
    if (how == 'o')
      throw Own();
    if (how == 'n')
      std::terminate();
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1)
      throw 5;
  }
  puts("after");
  return 0;
}
