// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Says where its one region ran, and fails if the MPI library that the plugin
// brought along has been started although the region ran in the host.

#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/// Whether the plugin is loaded; what libomptarget loads stays so.
static int plugin_loaded(void) {
  char line[4096];
  int found = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps))
    found |= strstr(line, "libomptarget.rtl.mpi.so") ||
             strstr(line, "libomptarget.rtl.ppc64.so");
  fclose(maps);
  return found;
}

int main(void) {
  int there = 0, started = 0;
#pragma omp target map(from : there)
  there = getpid();
  // The plugin may have brought it along for itself.
  void *mpi = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
  if (!mpi)
    mpi = dlopen("libmpich.so.12", RTLD_LAZY | RTLD_NOLOAD);
  int (*initialized)(int *) =
      mpi ? (int (*)(int *))dlsym(mpi, "MPI_Initialized") : NULL;
  if (initialized)
    initialized(&started);
  printf("region: %s, plugin: %s, MPI: %s\n",
         there == getpid() ? "host" : "device",
         plugin_loaded() ? "loaded" : "not loaded",
         started ? "started" : "not started");
  return there == 0;
}
