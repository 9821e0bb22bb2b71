// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several hosts, reached by TCP only: devices run where the launcher is told, with the
// variables that mean something to them; data and results cross the network; --check
// finds a host that lacks the device executable. Hosts may have one name in two domains.
//
// REQUIRES: hosts
//
// RUN: %clang %s -o %t
// RUN: %bare %hosts alpha,beta,gamma env OMP_NUM_THREADS=3 %launch --hosts beta,gamma:2 %t > %t.out
// RUN: FileCheck %s --input-file %t.out
// RUN: printf 'gamma slots=2 # the large one\nbeta\n' > %t.hosts
// RUN: %bare %hosts alpha,beta,gamma env OMP_NUM_THREADS=3 %launch --hostfile %t.hosts %t > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=FILE
// RUN: %bare %hosts alpha,n1.east,n1.west env OMP_NUM_THREADS=3 %launch --hosts n1.east,n1.west %t > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=NAMESAKES
//
// CHECK: program on alpha
// CHECK-NEXT: device 0 on beta, 3 threads
// CHECK-NEXT: device 1 on gamma, 3 threads
// CHECK-NEXT: device 2 on gamma, 3 threads
// FILE: program on alpha
// FILE-NEXT: device 0 on gamma, 3 threads
// FILE-NEXT: device 1 on gamma, 3 threads
// FILE-NEXT: device 2 on beta, 3 threads
// NAMESAKES: device 0 on n1.east, 3 threads
// NAMESAKES-NEXT: device 1 on n1.west, 3 threads
//
// RUN: not %hosts --hide gamma=%prefix alpha,beta,gamma %launch --hosts beta,gamma --check %t > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=LACKS
// LACKS: ok host beta: llvm-offload-mpi-device
// LACKS: ok host beta: beta: {{[0-9]+}} cores
// LACKS: FAIL host gamma: there is no /{{.*}}/llvm-offload-mpi-device; install omptarget-mpi there

#include "offload.h"

enum { N = 1 << 20 };

int main(void) {
  char name[64];
  gethostname(name, sizeof name);
  printf("program on %s\n", name);
  int *a = malloc(N * sizeof *a);
  for (int i = 0; i < N; ++i)
    a[i] = i;
  for (int d = 0; d < omp_get_num_devices(); ++d) {
    char there[64] = "";
    int threads = 0;
#pragma omp target map(from : there, threads) map(tofrom : a[:N]) device(d)
    {
      gethostname(there, sizeof there);
      threads = omp_get_max_threads();
      for (int i = 0; i < N; ++i)
        a[i] += i;
    }
    for (int i = 0; i < N; ++i)
      CHECK(a[i] == (d + 2) * i);
    printf("device %d on %s, %d threads\n", d, there, threads);
  }
  free(a);
  return 0;
}
