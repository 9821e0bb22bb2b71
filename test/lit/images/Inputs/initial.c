// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Part of without-libomptarget.c: a library that calls a function of libomptarget, but is not linked with it.

int omp_get_initial_device(void);

int initial_device(void) { return omp_get_initial_device(); }
