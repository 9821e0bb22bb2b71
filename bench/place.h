// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which plugin serves the benchmark's OpenMP programs.

#include <string.h>
#include <unistd.h>

static void check(int right, const char *what);

// Fails unless regions of a device run in this process ("here") or not ("elsewhere").
static void check_place(int device, const char *place) {
  long process = 0;
#pragma omp target device(device) map(from : process)
  process = getpid();
  check(process && (process != getpid()) == !strcmp(place, "elsewhere"),
        "the plugin that runs regions");
}
