// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queues of the Offload API: functions that the host calls hold up what is behind them
// in their queue, and what waits for an event there, but no caller; several threads can
// use one queue.
//
// REQUIRES: offload-api
// RUN: %plain-clang %offload-api %s -lLLVMOffload -pthread -o %t
// RUN: %run2 %t | FileCheck %s --match-full-lines
//
// CHECK:      blocked: order
// CHECK-NEXT: other queue: waits for the event
// CHECK-NEXT: waiting inside: refused
// CHECK-NEXT: sequence: 1000
// CHECK-NEXT: threads: 0 wrong
// CHECK-NEXT: left behind: called

#include <stdbool.h> // OffloadAPI.h lacks it

#include <OffloadAPI.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(Call)                                                            \
  do {                                                                         \
    ol_result_t result = (Call);                                               \
    if (result != OL_SUCCESS) {                                                \
      printf("%s: error %d: %s\n", #Call, result->Code, result->Details);      \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

static ol_device_handle_t host, devices[2];
static int number;

static bool take(ol_device_handle_t device, void *unused) {
  (void)unused;
  ol_device_type_t type;
  CHECK(olGetDeviceInfo(device, OL_DEVICE_INFO_TYPE, sizeof type, &type));
  if (type == OL_DEVICE_TYPE_HOST)
    host = device;
  else if (number < 2)
    devices[number++] = device;
  return true;
}

static atomic_int opened, called;
static pthread_t caller;

static void block(void *unused) {
  (void)unused;
  while (!opened)
    usleep(1000);
  if (!pthread_equal(pthread_self(), caller))
    ++called;
}

static void wait_inside(void *queue) {
  ol_result_t result = olSyncQueue(queue);
  printf("waiting inside: %s\n",
         result && result->Code == OL_ERRC_INVALID_ARGUMENT ? "refused"
                                                            : "WRONG");
  ++called;
}

static void add(void *sum) { ++*(long *)sum; }

static bool is_complete(ol_event_handle_t event) {
  bool complete;
  CHECK(olGetEventInfo(event, OL_EVENT_INFO_IS_COMPLETE, sizeof complete,
                       &complete));
  return complete;
}

static bool is_empty(ol_queue_handle_t queue) {
  bool empty;
  CHECK(olGetQueueInfo(queue, OL_QUEUE_INFO_EMPTY, sizeof empty, &empty));
  return empty;
}

static void blocked(ol_device_handle_t device) {
  ol_queue_handle_t queue, other;
  ol_event_handle_t event;
  void *memory;
  long in = 1, out = 0, out_other = 0, seven = 7;
  CHECK(olCreateQueue(device, &queue));
  CHECK(olCreateQueue(device, &other));
  CHECK(olMemAlloc(device, OL_ALLOC_TYPE_DEVICE, sizeof in, &memory));
  CHECK(olMemcpy(queue, memory, device, &in, host, sizeof in));
  CHECK(olLaunchHostFunction(queue, block, NULL));
  CHECK(olMemFill(queue, memory, sizeof seven, &seven, sizeof seven));
  seven = 8;
  CHECK(olMemcpy(queue, &out, host, memory, device, sizeof out));
  CHECK(olCreateEvent(queue, &event));
  // Another queue waits for it; the event may go before that is over.
  CHECK(olWaitEvents(other, &event, 1));
  CHECK(olMemcpy(other, &out_other, host, memory, device, sizeof out_other));
  // A third one does not. What nothing holds up is over after that.
  CHECK(olMemcpy(NULL, &in, host, memory, device, sizeof in));
  bool right = in == 1 && out == 0 && !is_complete(event) && !is_empty(queue) &&
               !is_empty(other);
  CHECK(olDestroyEvent(event));
  opened = 1;
  CHECK(olSyncQueue(queue));
  printf("blocked: %s\n", right && out == 7 && called == 1 && is_empty(queue)
                              ? "order"
                              : "WRONG");
  CHECK(olSyncQueue(other));
  printf("other queue: %s\n", out_other == 7 ? "waits for the event" : "WRONG");

  CHECK(olLaunchHostFunction(queue, wait_inside, queue));
  while (called != 2)
    usleep(1000);
  long sum = 0;
  for (int i = 0; i < 1000; ++i) {
    CHECK(olLaunchHostFunction(queue, add, &sum));
    if (i % 100 == 0)
      CHECK(olCreateEvent(queue, &event));
  }
  CHECK(olSyncEvent(event));
  CHECK(olDestroyEvent(event));
  CHECK(olSyncQueue(queue));
  printf("sequence: %ld\n", sum);
  CHECK(olMemFree(memory));
  CHECK(olDestroyQueue(queue));
  CHECK(olDestroyQueue(other));
}

static ol_queue_handle_t shared;
static atomic_int wrong;

static void *use(void *argument) {
  ol_device_handle_t device = devices[0];
  long me = (long)argument, in[64], out[64];
  void *memory;
  CHECK(olMemAlloc(device, OL_ALLOC_TYPE_DEVICE, sizeof in, &memory));
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 64; ++i)
      in[i] = me * 1000 + round + i;
    long sum = 0;
    CHECK(olMemcpy(shared, memory, device, in, host, sizeof in));
    if (me == 0 && round % 10 == 0)
      CHECK(olLaunchHostFunction(shared, add, &sum));
    CHECK(olMemcpy(shared, out, host, memory, device, sizeof out));
    CHECK(olSyncQueue(shared));
    wrong += memcmp(in, out, sizeof in) != 0;
    wrong += sum != (me == 0 && round % 10 == 0);
  }
  CHECK(olMemFree(memory));
  return NULL;
}

int main(void) {
  caller = pthread_self();
  CHECK(olInit());
  CHECK(olIterateDevices(take, NULL));
  if (number != 2)
    return 2;
  blocked(devices[1]);

  pthread_t threads[8];
  CHECK(olCreateQueue(devices[0], &shared));
  for (long i = 0; i < 8; ++i)
    pthread_create(&threads[i], NULL, use, (void *)i);
  for (int i = 0; i < 8; ++i)
    pthread_join(threads[i], NULL);
  printf("threads: %d wrong\n", wrong);
  CHECK(olDestroyQueue(shared));

  // Nobody waits for this queue: the end does.
  ol_queue_handle_t last;
  long sum = 0;
  CHECK(olCreateQueue(devices[0], &last));
  CHECK(olLaunchHostFunction(last, add, &sum));
  CHECK(olShutDown());
  printf("left behind: %s\n", sum == 1 ? "called" : "WRONG");
  return 0;
}
