// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies of many pieces, for which MPI and the accelerator's copies overlap: each way by itself, and between two devices in
// both directions, to them and from them, all at once. A piece in the middle that fails ends the program with one line.
//
// RUN: %clang %s -o %t
// RUN: %run2 %t
// RUN: %if llvm16 %{ %make-standin %}
// RUN: %if llvm16 %{ %standin %run2 %t %}
// RUN: %if llvm16 %{ %standin env STANDIN_SPEED=2000 %run2 %t %}
// RUN: %if llvm16 %{ %standin env STANDIN_FAIL=submit:3 %run --rc fail %t alone 2> %t.err %}
// RUN: %if llvm16 %{ %line error %t.err "device 0 .rank 1 on host %hostname.*could not copy [0-9]+ bytes; libomptarget says: submit fails" %}
// RUN: %if llvm16 %{ %standin env STANDIN_FAIL=retrieve:3 %run --rc fail %t alone 2> %t.err %}
// RUN: %if llvm16 %{ %line error %t.err "device 0 .rank 1 on host %hostname.*could not copy [0-9]+ bytes; libomptarget says: retrieve fails" %}
// RUN: %if llvm16 %{ %standin env STANDIN_ABORT=submit:3 %run --rc fail %t alone 2> %t.err %}
// RUN: %if llvm16 %{ %line error %t.err "device 0 .rank 1 on host %hostname.*a copy to or from the accelerator failed" %}
// RUN: %if llvm16 %{ %standin env STANDIN_ABORT=retrieve:3 %run --rc fail %t alone 2> %t.err %}
// RUN: %if llvm16 %{ %line error %t.err "device 0 .rank 1 on host %hostname.*a copy to or from the accelerator failed" %}

#include "offload.h"

enum { N = 5000001, BYTES = N * sizeof(int), DEVICES = 2, ROUNDS = 3 };

static int *numbers(int first) {
  int *all = malloc(BYTES);
  for (int i = 0; i < N; ++i)
    all[i] = first + i;
  return all;
}

/// To a device and back; the number of wrong elements.
static int there_and_back(int device, int first) {
  int here = omp_get_initial_device(), wrong = 0;
  int *a = numbers(first), *b = calloc(N, sizeof *b), *there = omp_target_alloc(BYTES, device);
  CHECK(there);
  int failed = omp_target_memcpy(there, a, BYTES, 0, 0, device, here) ||
               omp_target_memcpy(b, there, BYTES, 0, 0, here, device);
  for (int i = 0; i < N; ++i)
    wrong += b[i] != first + i;
  omp_target_free(there, device);
  free(a), free(b);
  return failed + wrong;
}

/// To one device, from there to another one, and back from that.
static int across(int from, int to, int first) {
  int here = omp_get_initial_device(), wrong = 0;
  int *a = numbers(first), *b = calloc(N, sizeof *b);
  int *source = omp_target_alloc(BYTES, from), *target = omp_target_alloc(BYTES, to);
  CHECK(source && target);
  int failed = omp_target_memcpy(source, a, BYTES, 0, 0, from, here);
  for (int round = 0; round < ROUNDS; ++round)
    failed |= omp_target_memcpy(target, source, BYTES, 0, 0, to, from);
  failed |= omp_target_memcpy(b, target, BYTES, 0, 0, here, to);
  for (int i = 0; i < N; ++i)
    wrong += b[i] != first + i;
  omp_target_free(source, from), omp_target_free(target, to);
  free(a), free(b);
  return failed + wrong;
}

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1)
    return there_and_back(0, 1) != 0;
  int wrong = 0;
  need_devices(DEVICES);
  for (int device = 0; device < DEVICES; ++device)
    wrong += there_and_back(device, device);
  CHECK(wrong == 0);
#pragma omp parallel for num_threads(2 * DEVICES) schedule(static, 1) reduction(+ : wrong)
  for (int k = 0; k < 2 * DEVICES; ++k)
    wrong += k < DEVICES ? across(k, 1 - k, 100 * k) : there_and_back(k - DEVICES, 100 * k);
  CHECK(wrong == 0);
  return 0;
}
