// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints on which hosts the program and its devices run.

#include <omp.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  char host[64] = "", line[1000];
  gethostname(host, sizeof host);
  int at = sprintf(line, "at %s:", host), bad = 0;
  for (int n = 0; n < omp_get_num_devices(); ++n) {
    char name[64] = "";
    int initial = 1;
#pragma omp target device(n) map(from : name, initial)
    {
      initial = omp_is_initial_device();
      gethostname(name, sizeof name);
    }
    at += sprintf(line + at, " %s", name);
    bad |= initial;
  }
  puts(line);
  return bad;
}
