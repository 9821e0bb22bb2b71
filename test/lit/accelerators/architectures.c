// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program with images for several accelerators and for processors: a device gets the one that it executes, wherever that
// is one of them. If no image fits, the error names both architectures. (The images are copies of one that processors
// execute, and claim to be for CUDA; so do the driver and the stand-in.)
//
// REQUIRES: llvm16
// RUN: %clang %S/Inputs/kernel.c -o %t.kernel
// RUN: %host-clang %s -lomptarget -o %t
// RUN: %make-standin
// RUN: mv %t.standin/libomptarget.rtl.x86_64.so %t.standin/libomptarget.rtl.cuda.so
// RUN: mv %t.standin/libomptarget.rtl.x86_64.nextgen.so %t.standin/libomptarget.rtl.cuda.nextgen.so
// RUN: %make-driver
// RUN: %standin env STANDIN_MACHINE=190 %run2 %t %t.kernel %t.images 80 90 0
// RUN: %standin env STANDIN_MACHINE=190 %run2 %t %t.kernel %t.images 0 70 80
// RUN: %standin env STANDIN_MACHINE=190 %run --rc fail %t %t.kernel %t.images 70 90 2> %t.err
// RUN: %line error %t.err "load_binary: device 0 .rank 1 on host %hostname.*accelerator 0 .CUDA sm_80.*the image is: built for CUDA sm_90, not for the device.s CUDA sm_80"
// RUN: %run %t %t.kernel %t.images 80 0 90

#define _GNU_SOURCE
#include "offload.h"
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  void *addr;
  char *name;
  size_t size;
  int32_t flags, reserved;
} Entry;

typedef struct {
  void *start, *end;
  Entry *entries, *entries_end;
} Image;

typedef struct {
  int32_t n;
  Image *images;
  Entry *entries, *entries_end;
} Descriptor;

typedef struct {
  uint32_t version, count;
  void **bases, **pointers;
  int64_t *sizes, *types;
  void **names, **mappers;
  uint64_t tripcount, flags;
  uint32_t teams[3], threads[3], memory;
} KernelArgs;

void __tgt_register_lib(Descriptor *all);
void __tgt_unregister_lib(Descriptor *all);
int __tgt_target_kernel(void *, int64_t device, int32_t teams, int32_t threads, void *key, KernelArgs *args);

// A program PROGRAM with one image, a file for images, and for each what it claims: sm_NN of CUDA, or x86-64 (0).
int main(int argc, char **argv) {
  struct stat info;
  int program = open(argv[1], O_RDONLY), file = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fstat(program, &info) == 0);
  char *bytes = mmap(NULL, info.st_size, PROT_READ, MAP_PRIVATE, program, 0), *elf = bytes;
  for (char *at = bytes + 8; at + 8 < bytes + info.st_size; at += 8)
    elf = memcmp(at, ELFMAG, SELFMAG) ? elf : at;
  CHECK(elf != bytes);
  char *name = memmem(elf, bytes + info.st_size - elf, "__omp_offloading_", 17);
  size_t size = bytes + info.st_size - elf, room = (size + 4095) & ~4095ul;
  int n = argc - 3;
  CHECK(name != NULL && ftruncate(file, (n + 1) * room) == 0);
  char *copies = mmap(NULL, (n + 1) * room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  static char key;
  static Entry entry;
  static Image images[8];
  entry = (Entry){&key, name, 0, 0, 0};
  for (int i = 0; i < n; ++i) {
    Elf64_Ehdr *copy = memcpy(copies + (i + 1) * room, elf, size);
    if (atoi(argv[i + 3])) {
      copy->e_machine = 190;
      copy->e_flags = atoi(argv[i + 3]);
    }
    images[i] = (Image){copy, (char *)copy + size, &entry, &entry + 1};
  }
  static Descriptor all;
  all = (Descriptor){n, images, &entry, &entry + 1};
  __tgt_register_lib(&all);
  for (int d = 0; d < omp_get_num_devices(); ++d) {
    int x = 1, host = omp_get_initial_device();
    void *p = omp_target_alloc(sizeof x, d);
    CHECK(omp_target_memcpy(p, &x, sizeof x, 0, 0, d, host) == 0);
    int64_t bytes_of_pointer = sizeof p, literal = 0x120;
    KernelArgs args = {2, 1, &p, &p, &bytes_of_pointer, &literal, .teams = {1}};
    CHECK(__tgt_target_kernel(NULL, d, 1, 0, &key, &args) == 0);
    CHECK(omp_target_memcpy(&x, p, sizeof x, 0, 0, host, d) == 0 && x == 3);
  }
  __tgt_unregister_lib(&all);
  return 0;
}
