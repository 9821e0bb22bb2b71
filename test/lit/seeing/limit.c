// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Of more events than each process keeps the last are dropped, and a warning of each device
// says how many; the trace is sound, and the statistics know of all regions.
//
// RUN: %clang %s -o %t
// RUN: env OMPTARGET_MPI_STATS=1 OMPTARGET_MPI_TRACE=%t.json %run1 %t 2> %t.err
// RUN: FileCheck %s --input-file %t.err
// RUN: %line warning %t.err "lacks 188[0-9][0-9] events of device 0" "keep 3072 each"
// REQUIRES: tiny-limits
// RUN: %trace %t.json > %t.out
// RUN: FileCheck %s --input-file %t.out --check-prefix=TRACE
//
// A region is 2 events on the device (message, kernel) and 3 on the host (launch, its
// sending, wait): of 5001 regions and an image there are more than 25,000, of which each
// process keeps 3072 with tiny limits.
//
// CHECK: regions 5001
// TRACE: device 0: dropped: 188{{[0-9][0-9]}}
// TRACE: device 0: main, line 27: 15{{[0-9][0-9]$}}
// TRACE: program: launch main, line 27: 10{{[0-9][0-9]$}}

#include "offload.h"

int main(void) {
  need_devices(1);
  for (int i = 0; i < 5000; ++i) {
#pragma omp target
    {}
  }
  return 0;
}
