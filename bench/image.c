// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long an image of more than 64 MiB takes to all devices: prints "image<TAB>seconds",
// from the first region on the first device to the end of one on each.

#include "sample.h"
#include <omp.h>

enum { LARGE = 64 << 20 };

#pragma omp declare target
// The last part, for Clang 16 loses a variable whose initializer leaves the end out.
static struct {
  char zeros[LARGE];
  int three;
} ballast = {.three = 3};
#pragma omp end declare target

int main(void) {
  int devices = omp_get_num_devices();
  check(devices > 0, "no devices");
  double begin = now();
  for (int d = 0; d < devices; ++d) {
    int sum = 0;
#pragma omp target device(d) map(from : sum)
    sum = ballast.zeros[d] + ballast.three;
    check(sum == 3, "the image's data");
  }
  printf("image\t%.9f\n", now() - begin);
  return 0;
}
