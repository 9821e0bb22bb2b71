// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A linked list, whose pointers are the accelerator's own addresses: built by a kernel and walked by another one on each
// of three devices; no two devices have the same addresses, although each accelerator offers the same ones first, even
// where a driver at first ignores what its process has reserved. If it always does, one line names both devices. One of
// the devices may be a processor.
//
// RUN: %clang %s -o %t
// RUN: %run3 %t
// RUN: %if llvm16 %{ %make-standin %}
// RUN: %if llvm16 %{ %standin %run3 %t %}
// RUN: %if llvm16 %{ %standin env STANDIN_STUBBORN=1 %run3 %t %}
// RUN: %if llvm16 %{ %standin env STANDIN_STUBBORN=1000 %run3 --rc fail %t 2> %t.err %}
// RUN: %if llvm16 %{ %line error %t.err "device 1 .rank 2 on host %hostname.* has its memory at 0x200000000000 to .*, where device 0 .rank 1 on host %hostname.* has its memory, and its driver gives it no other" %}
// RUN: %if llvm16 %{ %standin %run --ranks cddh %t %}
// RUN: %if llvm16 %{ %standin %run --ranks ddch %t %}

#include "offload.h"

enum { N = 1000, DEVICES = 3 };

typedef struct Node {
  struct Node *next;
  long value;
} Node;

int main(void) {
  need_devices(DEVICES);
  Node *nodes[DEVICES];
  int here = omp_get_initial_device();
  for (int d = 0; d < DEVICES; ++d) {
    Node *n = nodes[d] = omp_target_alloc(N * sizeof(Node), d);
    CHECK(n != NULL);
    for (int e = 0; e < d; ++e)
      CHECK(nodes[e] + N <= n || n + N <= nodes[e]);
#pragma omp target is_device_ptr(n) device(d)
    for (int i = 0; i < N; ++i)
      n[i] = (Node){i + 1 < N ? &n[i + 1] : NULL, i + d};
  }
  for (int d = 0; d < DEVICES; ++d) {
    Node *n = nodes[d], first;
    long sum = 0, length = 0;
#pragma omp target is_device_ptr(n) map(from : sum, length) device(d)
    {
      sum = length = 0;
      for (Node *at = n; at; at = at->next, ++length)
        sum += at->value;
    }
    CHECK(length == N && sum == (N - 1) * N / 2 + N * d);
    // The program has the same addresses.
    CHECK(omp_target_memcpy(&first, n, sizeof first, 0, 0, here, d) == 0);
    CHECK(first.next == n + 1 && first.value == d);
  }
  // A list in the program's memory, linked for a device.
  Node *mine = malloc(N * sizeof *mine);
  for (int i = 0; i < N; ++i)
    mine[i] = (Node){i + 1 < N ? &nodes[1][i + 1] : NULL, 2 * i};
  CHECK(omp_target_memcpy(nodes[1], mine, N * sizeof *mine, 0, 0, 1, here) == 0);
  Node *n = nodes[1];
  long sum = 0;
#pragma omp target is_device_ptr(n) map(tofrom : sum) device(1)
  for (Node *at = n; at; at = at->next)
    sum += at->value;
  CHECK(sum == (N - 1) * N);
  for (int d = 0; d < DEVICES; ++d)
    omp_target_free(nodes[d], d);
  free(mine);
  return 0;
}
