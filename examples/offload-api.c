// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// offload-api: y = 3 x + y by LLVM's Offload API, without OpenMP, on every device.
//
//   clang-22 -I/usr/lib/llvm-22/include/offload offload-api.c -lLLVMOffload -o offload-api
//   clang-22 -O2 -DKERNEL -shared -fPIC offload-api.c -o kernel.so
//   llvm-offload-mpirun -n 2 ./offload-api kernel.so
//
// A device program is a shared library for the device's machine. A kernel is a
// function in it, which is called once for each launch; each of its arguments takes
// eight bytes of those that the launch is given.

#ifdef KERNEL

void axpy(long n, long a, const long *x, long *y) {
  for (long i = 0; i < n; ++i)
    y[i] += a * x[i];
}

#else

#include <stdbool.h> // OffloadAPI.h lacks it

#include <OffloadAPI.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 100000, MOST_DEVICES = 64 };

// Ends the program if a call has failed.
static void check(ol_result_t result) {
  if (result == OL_SUCCESS)
    return;
  fprintf(stderr, "offload-api: error %d: %s\n", result->Code, result->Details);
  exit(1);
}

struct devices {
  ol_device_handle_t host, others[MOST_DEVICES];
  int number;
};

// Called for each device: the host is one of them.
static bool take(ol_device_handle_t device, void *user_data) {
  struct devices *devices = user_data;
  ol_device_type_t type;
  check(olGetDeviceInfo(device, OL_DEVICE_INFO_TYPE, sizeof type, &type));
  if (type == OL_DEVICE_TYPE_HOST)
    devices->host = device;
  else if (devices->number < MOST_DEVICES)
    devices->others[devices->number++] = device;
  return true;
}

// The whole of a file.
static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0 || (*size = ftell(file)) == 0) {
    fprintf(stderr, "offload-api: %s can't be read\n", path);
    exit(1);
  }
  void *bytes = malloc(*size);
  rewind(file);
  if (!bytes || fread(bytes, 1, *size, file) != *size)
    exit(1);
  fclose(file);
  return bytes;
}

static void count(void *user_data) { ++*(int *)user_data; }

// Runs the kernel on a device; returns how many results are wrong.
static long run(ol_device_handle_t device, ol_device_handle_t host,
                const void *bytes, size_t size) {
  static long x[N], y[N];
  for (long i = 0; i < N; ++i) {
    x[i] = i;
    y[i] = 1;
  }
  ol_queue_handle_t queue;
  ol_program_handle_t program;
  ol_symbol_handle_t kernel;
  check(olCreateQueue(device, &queue));
  check(olCreateProgram(device, bytes, size, &program));
  check(olGetSymbol(program, "axpy", OL_SYMBOL_KIND_KERNEL, &kernel));

  void *device_x, *device_y;
  check(olMemAlloc(device, OL_ALLOC_TYPE_DEVICE, sizeof x, &device_x));
  check(olMemAlloc(device, OL_ALLOC_TYPE_DEVICE, sizeof y, &device_y));

  // A queue's operations are done in their order; nothing waits for them here.
  struct {
    long n, a;
    void *x, *y;
  } arguments = {N, 3, device_x, device_y};
  ol_kernel_launch_size_args_t once = {1, {1, 1, 1}, {1, 1, 1}, 0};
  int done = 0;
  check(olMemcpy(queue, device_x, device, x, host, sizeof x));
  check(olMemcpy(queue, device_y, device, y, host, sizeof y));
  check(olLaunchKernel(queue, device, kernel, &arguments, sizeof arguments,
                       &once));
  check(olMemcpy(queue, y, host, device_y, device, sizeof y));
  check(olLaunchHostFunction(queue, count, &done));
  check(olSyncQueue(queue));

  check(olMemFree(device_x));
  check(olMemFree(device_y));
  check(olDestroyProgram(program));
  check(olDestroyQueue(queue));
  long wrong = done != 1;
  for (long i = 0; i < N; ++i)
    wrong += y[i] != 3 * i + 1;
  return wrong;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: offload-api KERNEL.SO\n");
    return 2;
  }
  size_t size;
  void *bytes = read_file(argv[1], &size);
  struct devices devices = {0};
  long wrong = 0, used = 0;
  check(olInit());
  check(olIterateDevices(take, &devices));
  for (int d = 0; d < devices.number; ++d) {
    ol_device_handle_t device = devices.others[d];
    char name[256];
    size_t length;
    check(olGetDeviceInfoSize(device, OL_DEVICE_INFO_NAME, &length));
    if (length > sizeof name)
      return 1;
    check(olGetDeviceInfo(device, OL_DEVICE_INFO_NAME, length, name));
    bool valid = false;
    check(olIsValidBinary(device, bytes, size, &valid));
    printf("%s: %s\n", name, valid ? "used" : "takes no such programs");
    if (valid)
      wrong += run(device, devices.host, bytes, size);
    used += valid;
  }
  check(olShutDown());
  free(bytes);
  printf("result: %s\n", wrong || !used ? "WRONG" : "right");
  return wrong || !used;
}

#endif
