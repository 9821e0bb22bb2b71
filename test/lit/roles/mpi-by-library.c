// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Only a library that a program loads calls MPI, as mpi4py does: starting it unless that is done. Another one has the
// regions. The devices must not be ranks of the program's MPI_COMM_WORLD; if they are, that is reported as soon as it can be
// seen, whichever library comes first.
//
// REQUIRES: mpicc
// RUN: %clang -shared -fPIC -DREGIONS %s -o %t.regions.so
// RUN: %plain-mpicc -shared -fPIC -DMPI %s -o %t.mpi.so
// RUN: %plain-clang %s -o %t -ldl
//
// RUN: %bare --rc fail --timeout 40 %launch -r 2 -n 2 --program %t.regions.so %t %t.mpi.so start %t.regions.so region 2> %t.err
// RUN: %line some-error %t.err "it has called MPI_Init" "--program-mpi yes"
// RUN: %bare --rc fail --timeout 40 %launch -r 2 -n 2 --program %t.regions.so %t %t.regions.so %t.mpi.so start region 2> %t.err
// RUN: %line some-error %t.err "its library /.*.mpi.so is linked with MPI" "--program-mpi yes"
// After the first region it is seen in what the library does.
// RUN: %bare --rc fail --timeout 40 %launch -r 2 -n 2 --program %t.regions.so %t %t.regions.so region %t.mpi.so init 2> %t.err
// RUN: %if mpich %{ grep -q "Cannot call MPI_INIT or MPI_INIT_THREAD more than once" %t.err %}
//
// With the option it works in each order.
// RUN: %if openmpi %{ %bare %launch -r 2 -n 2 --program-mpi yes --program %t.regions.so %t %t.mpi.so start %t.regions.so region end %}
// RUN: %if openmpi %{ %bare %launch -r 2 -n 2 --program-mpi yes --program %t.regions.so %t %t.regions.so %t.mpi.so start region end %}

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(REGIONS)

int region(void) {
  int there = 0;
#pragma omp target map(from : there)
  there = getpid();
  return there != getpid();
}

#elif defined(MPI)
#include <mpi.h>

int init(void) { return MPI_Init(NULL, NULL) == MPI_SUCCESS; }

int start(void) {
  int before, level;
  MPI_Initialized(&before);
  return before || MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS;
}

/// True if the program's ranks are alone.
int end(void) {
  int size, sum = 0, one = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return size == 2 && sum == 2;
}

#else

/// Loads libraries, and calls their functions.
int main(int argc, char **argv) {
  void *libraries[2];
  int n = 0;
  for (int i = 1; i < argc; ++i) {
    if (strchr(argv[i], '/')) {
      if (!(libraries[n++] = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL))) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
      }
      continue;
    }
    int (*function)(void) = NULL;
    for (int l = 0; l < n && !function; ++l)
      function = (int (*)(void))dlsym(libraries[l], argv[i]);
    if (!function || !function()) {
      fprintf(stderr, "%s failed\n", argv[i]);
      return 1;
    }
  }
  return 0;
}
#endif
