// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program without target regions ends MPI in time: if it only asks for the number of devices, and
// if it only uses their memory. (With LLVM 18 the exit handler ran after the destructors of MPI's
// libraries.)
//
// RUN: %clang %s -o %t
// RUN: %run1 %t
// RUN: %run1 %t memory

#include "offload.h"
#include <string.h>

int main(int argc, char **argv) {
  (void)argv;
  need_devices(1);
  if (argc == 1)
    return 0;
  char text[] = "some text", copy[sizeof text];
  int host = omp_get_initial_device();
  void *there = omp_target_alloc(sizeof text, 0);
  int failed = omp_target_memcpy(there, text, sizeof text, 0, 0, 0, host) ||
               omp_target_memcpy(copy, there, sizeof text, 0, 0, host, 0);
  omp_target_free(there, 0);
  return failed || strcmp(copy, text) != 0;
}
