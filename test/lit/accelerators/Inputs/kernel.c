// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One kernel, of one argument.

int main(void) {
  int *p = 0;
#pragma omp target is_device_ptr(p)
  *p += 2;
}
