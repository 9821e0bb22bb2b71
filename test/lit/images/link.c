// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// `declare target link`: a global that has a place on the device only while it
// is mapped; and globals of every other kind beside it, updated both ways.
//
// The libomptarget of LLVM 18 loads an image on an accelerator once, wherever that is.
// UNSUPPORTED: accelerators && llvm18
//
// RUN: %clang %s -o %t
// RUN: %run2 %t
// At the same addresses as its devices: the images are moved.
// RUN: env OMPTARGET_MPI_UNIFIED=off setarch -R %run2 %t
// REQUIRES: plugin

#include "offload.h"

enum { N = 5000 };
static int linked[N];
int also_linked = 3;
#pragma omp declare target link(linked, also_linked)

int initialised[4] = {1, 2, 3, 4};
double zeroed[N];
const char *text = "device text";
#pragma omp declare target(initialised, zeroed, text)

static void use(int d) {
  for (int i = 0; i < N; ++i)
    linked[i] = i;
#pragma omp target map(tofrom : linked, also_linked) device(d)
  for (int i = 0; i < N; ++i)
    linked[i] += also_linked;
  for (int i = 0; i < N; ++i)
    CHECK(linked[i] == i + 3);

  int sum = 0, length = 0;
  initialised[0] = 10;
#pragma omp target update to(initialised) device(d)
#pragma omp target map(tofrom : sum, length) device(d)
  {
    for (int i = 0; i < 4; ++i)
      sum += initialised[i];
    for (int i = 0; i < N; ++i)
      zeroed[i] += i;
    length = text != NULL;
  }
  CHECK(sum == 19 && length == 1);
  memset(zeroed, 0, sizeof zeroed);
#pragma omp target update from(zeroed) device(d)
  for (int i = 0; i < N; ++i)
    CHECK(zeroed[i] == i);
}

int main(void) {
  need_devices(2);
  use(0);
  use(1);
  return 0;
}
