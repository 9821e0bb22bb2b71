// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Results of a region that stays open are its own, however many other transfers come and go
// meanwhile: more than MPI has tags, of equal and of other sizes, to the same device and between
// two devices.
//
// Worker processes can't have accelerators.
// UNSUPPORTED: accelerators
//
// RUN: %clang %if tiny-limits %{ -DTRANSFERS=500 %} %s -o %t
// RUN: %run2 %t regions
// RUN: %if thorough %{ %run2 %t copies %}
// RUN: %if thorough %{ %run2 %t sizes %}
// RUN: %run2 %t exchange
// RUN: %if thorough %{ env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 %t regions %}
// RUN: %if thorough %{ env OMPTARGET_MPI_DEVICES_PER_RANK=2 %run1 %t exchange %}
// REQUIRES: plugin

#include "offload.h"

#ifndef TRANSFERS
#define TRANSFERS 33500 // more than there are tags: 32000 (8 with tiny limits)
#endif
// More bytes than the program copies itself, without MPI.
enum { Bytes = 72 << 10, Seed = 77 };

static unsigned char result[Bytes], other[2 * Bytes], expected[Bytes];

#pragma omp declare target
// Returns once the program has set *go.
static void wait_for(volatile int *go) {
  while (!*go)
    usleep(100);
}
#pragma omp end declare target

// The short transfers: with the device of the open region, or between two.
static void transfers(const char *what) {
  int host = omp_get_initial_device();
  unsigned char *one = omp_target_alloc(2 * Bytes, 0);
  unsigned char *two = omp_target_alloc(2 * Bytes, 1);
  CHECK(one && two);
  for (int i = 0; i < TRANSFERS; ++i) {
    if (!strcmp(what, "regions")) {
#pragma omp target map(tofrom : other[:Bytes])
      other[i % Bytes] = (unsigned char)i;
      CHECK(other[i % Bytes] == (unsigned char)i);
    } else if (!strcmp(what, "exchange")) {
      // As many receives as sends on each device.
      CHECK(!omp_target_memcpy(two, one, Bytes, 0, 0, 1, 0));
      CHECK(!omp_target_memcpy(one, two, Bytes, 0, 0, 0, 1));
    } else {
      size_t size = strcmp(what, "sizes") ? Bytes : Bytes - 1 - i % 16384;
      CHECK(!omp_target_memcpy(other, one, size, 0, 0, host, 0));
    }
  }
  omp_target_free(one, 0);
  omp_target_free(two, 1);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(2);
  fill(expected, Bytes, Seed);
  int *go = omp_target_alloc(sizeof *go, 0), value = 0;
  int host = omp_get_initial_device();
  CHECK(go && !omp_target_memcpy(go, &value, sizeof value, 0, 0, 0, host));
#pragma omp parallel num_threads(2)
#pragma omp single
  {
#pragma omp target nowait map(to : expected) map(from : result) is_device_ptr(go)
    {
      wait_for(go);
      memcpy(result, expected, Bytes);
    }
    transfers(argv[1]);
    value = 1;
    CHECK(!omp_target_memcpy(go, &value, sizeof value, 0, 0, 0, host));
  }
  CHECK(differences(result, Bytes, Seed) == 0);
  return 0;
}
