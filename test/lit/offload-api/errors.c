// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What fails has the error code that the Offload API has for it; host memory, and a
// global's address and size.
//
// REQUIRES: offload-api
// RUN: %plain-clang %offload-api %s -lLLVMOffload -o %t
// RUN: %plain-clang -DKERNEL -shared -fPIC %s -o %t.so
// RUN: %run2 %t %t.so 2> %t.err | FileCheck %s --match-full-lines
// RUN: FileCheck %s --input-file %t.err --check-prefix=ERR
//
// CHECK:      no program: INVALID_BINARY
// CHECK-NEXT: no kernel: NOT_FOUND
// CHECK-NEXT: no global: NOT_FOUND
// CHECK-NEXT: managed memory: UNSUPPORTED
// CHECK-NEXT: too much memory: OUT_OF_RESOURCES
// CHECK-NEXT: host memory: right
// CHECK-NEXT: global: right
// CHECK-NEXT: small argument: right
// CHECK-NEXT: function behind a failure: UNKNOWN, not called
// CHECK-NEXT: other device: right
//
// Nothing is reported that a program may well ask for.
// ERR-NOT:  NOT_FOUND
// ERR-NOT:  nothing
// ERR:      omptarget-mpi: error: {{.*}}kernel fault{{.*}}failed on device 0

#ifdef KERNEL

long global[3] = {1, 2, 3};
void store(long *to, unsigned char value) { *to = value; }
void fault(long *at) { *at = 1; }

#else

#include <stdbool.h> // OffloadAPI.h lacks it

#include <OffloadAPI.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(Call)                                                            \
  do {                                                                         \
    ol_result_t result = (Call);                                               \
    if (result != OL_SUCCESS) {                                                \
      printf("%s: error %d: %s\n", #Call, result->Code, result->Details);      \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

static ol_device_handle_t host, devices[2];
static int number, called;

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

static void call(void *unused) {
  (void)unused;
  ++called;
}

static const char *name(ol_result_t result) {
  switch (result ? result->Code : OL_ERRC_SUCCESS) {
  case OL_ERRC_SUCCESS:
    return "success";
  case OL_ERRC_UNKNOWN:
    return "UNKNOWN";
  case OL_ERRC_INVALID_BINARY:
    return "INVALID_BINARY";
  case OL_ERRC_NOT_FOUND:
    return "NOT_FOUND";
  case OL_ERRC_UNSUPPORTED:
    return "UNSUPPORTED";
  case OL_ERRC_OUT_OF_RESOURCES:
    return "OUT_OF_RESOURCES";
  default:
    return "another";
  }
}

int main(int argc, char **argv) {
  static char image[1 << 20];
  FILE *file = fopen(argv[argc - 1], "rb");
  size_t size = file ? fread(image, 1, sizeof image, file) : 0;
  CHECK(olInit());
  CHECK(olIterateDevices(take, NULL));
  if (number != 2 || size == 0)
    return 2;
  ol_device_handle_t device = devices[0];
  ol_program_handle_t program, none;
  ol_symbol_handle_t symbol, store;
  ol_queue_handle_t queue;
  void *memory;
  CHECK(olCreateQueue(device, &queue));
  CHECK(olCreateProgram(device, image, size, &program));

  printf("no program: %s\n",
         name(olCreateProgram(device, "nothing of that", 15, &none)));
  printf("no kernel: %s\n",
         name(olGetSymbol(program, "nothing", OL_SYMBOL_KIND_KERNEL, &symbol)));
  printf("no global: %s\n",
         name(olGetSymbol(program, "nothing", OL_SYMBOL_KIND_GLOBAL_VARIABLE,
                          &symbol)));
  printf("managed memory: %s\n",
         name(olMemAlloc(device, OL_ALLOC_TYPE_MANAGED, 8, &memory)));
  printf("too much memory: %s\n",
         name(olMemAlloc(device, OL_ALLOC_TYPE_DEVICE, 1ul << 46, &memory)));

  long *on_host, out[3];
  CHECK(olMemAlloc(device, OL_ALLOC_TYPE_HOST, sizeof out, (void **)&on_host));
  CHECK(olMemAlloc(device, OL_ALLOC_TYPE_DEVICE, sizeof out, &memory));
  memcpy(on_host, (long[3]){4, 5, 6}, sizeof out);
  CHECK(olMemcpy(queue, memory, device, on_host, host, sizeof out));
  CHECK(olMemcpy(queue, out, host, memory, device, sizeof out));
  CHECK(olSyncQueue(queue));
  printf("host memory: %s\n",
         memcmp(out, on_host, sizeof out) == 0 ? "right" : "WRONG");
  CHECK(olMemFree(on_host));

  void *address;
  CHECK(
      olGetSymbol(program, "global", OL_SYMBOL_KIND_GLOBAL_VARIABLE, &symbol));
  CHECK(olGetSymbolInfo(symbol, OL_SYMBOL_INFO_GLOBAL_VARIABLE_ADDRESS,
                        sizeof address, &address));
  CHECK(olGetSymbolInfo(symbol, OL_SYMBOL_INFO_GLOBAL_VARIABLE_SIZE,
                        sizeof size, &size));
  CHECK(olMemcpy(NULL, out, host, address, device, sizeof out));
  printf("global: %s\n",
         size == sizeof out && out[0] == 1 && out[2] == 3 ? "right" : "WRONG");

  // The last argument has less than eight bytes.
  ol_kernel_launch_size_args_t once = {1, {1, 1, 1}, {1, 1, 1}, 0};
  struct __attribute__((packed)) {
    void *to;
    unsigned char value;
  } arguments = {memory, 200};
  CHECK(olGetSymbol(program, "store", OL_SYMBOL_KIND_KERNEL, &store));
  CHECK(olLaunchKernel(queue, device, store, &arguments, sizeof arguments,
                       &once));
  CHECK(olMemcpy(queue, out, host, memory, device, sizeof out));
  CHECK(olSyncQueue(queue));
  printf("small argument: %s\n", out[0] == 200 ? "right" : "WRONG");

  void *null = NULL;
  CHECK(olGetSymbol(program, "fault", OL_SYMBOL_KIND_KERNEL, &symbol));
  CHECK(olLaunchKernel(queue, device, symbol, &null, sizeof null, &once));
  CHECK(olLaunchHostFunction(queue, call, NULL));
  ol_result_t result = olSyncQueue(queue);
  printf("function behind a failure: %s, %s\n", name(result),
         called ? "CALLED" : "not called");

  ol_queue_handle_t other;
  CHECK(olCreateQueue(devices[1], &other));
  CHECK(olLaunchHostFunction(other, call, NULL));
  CHECK(olSyncQueue(other));
  printf("other device: %s\n", called == 1 ? "right" : "WRONG");
  fflush(stdout);
  olShutDown();
  return 0;
}

#endif
