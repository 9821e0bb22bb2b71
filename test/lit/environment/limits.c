// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Few descriptors: what the MPI needs is enough for the rest; with less there is an error
// and an end, no hang. Any umask will do.
//
// RUN: %clang %s -o %t
// RUN: env LIT_DEVICE=%device %run --ranks hd --device %S/Inputs/few-files-device sh -c 'ulimit -n 48; exec %t'
// RUN: env LIT_DEVICE=%device FILES=8 OMPTARGET_MPI_START_TIMEOUT=10 %run --rc fail --device %S/Inputs/few-files-device %t
// RUN: %bare sh -c 'umask 777; exec %launch -n 1 %t'
// RUN: %bare sh -c 'umask 000; exec %launch -n 1 %t'

#include "offload.h"

int main(void) {
  need_devices(1);
  return 0;
}
