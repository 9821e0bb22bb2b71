// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A check that ends the program, for test programs with target regions or without.

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: wrong: %s\n", __FILE__, __LINE__, #condition);   \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

#endif
