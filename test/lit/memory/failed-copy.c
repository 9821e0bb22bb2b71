// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy to the device that fails there, because its target is constant, has returned already. The next
// call on that device fails and says why; if none follows, the end of the program does.
//
// On an accelerator a copy to a constant is refused at once.
// UNSUPPORTED: accelerators
//
// RUN: %clang %s -o %t
// RUN: %run2 --rc fail %t next 2> %t.err
// RUN: %line some-error %t.err "a copy to the device: .*device 0 .*4 bytes at 0x[0-9a-f]+ can.t be written"
// RUN: %run2 --rc fail %t copy 2> %t.err
// RUN: %line some-error %t.err "a copy to the device"
// RUN: env OMPTARGET_MPI_STATS=1 %run2 --rc fail %t last 2> %t.err
// RUN: %line some-error %t.err "a copy to the device"
// RUN: %run2 --rc fail %t last 2> %t.err
// RUN: %line some-error %t.err "a copy to the device"
// REQUIRES: plugin

#include "offload.h"

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(2);
  void *there = NULL;
#pragma omp target map(from : there)
  there = (void *)"a constant of the image";
  int seven = 7, here = omp_get_initial_device();
  int failed = omp_target_memcpy(there, &seven, sizeof seven, 0, 0, 0, here);
  if (!strcmp(argv[1], "next")) {
    // Other devices are well.
#pragma omp target map(tofrom : seven) device(1)
    ++seven;
    CHECK(seven == 8);
#pragma omp target map(tofrom : seven)
    ++seven;
    fprintf(stderr, "the region ran\n");
    return 0;
  }
  if (!strcmp(argv[1], "copy")) {
    int *other = omp_target_alloc(sizeof seven, 0);
    for (int i = 0; i < 1000 && !failed; ++i)
      failed = omp_target_memcpy(other, &seven, sizeof seven, 0, 0, 0, here);
    CHECK(failed);
    return 3;
  }
  return failed;
}
