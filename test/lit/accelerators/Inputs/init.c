// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints which accelerators a process may see when it starts MPI.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int Start(int *, char ***, int, int *);

int MPI_Init_thread(int *count, char ***arguments, int asked, int *got) {
  const char *variables[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "HIP_VISIBLE_DEVICES"};
  const char *seen[4];
  for (int i = 0; i < 4; ++i)
    seen[i] = getenv(variables[i]) ? getenv(variables[i]) : "all";
  fprintf(stderr, "visible at the start: %s %s %s, HIP %s\n", seen[0], seen[1], seen[2], seen[3]);
  return ((Start *)dlsym(RTLD_NEXT, "MPI_Init_thread"))(count, arguments, asked, got);
}
