// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An image for another accelerator than a device has is refused by the device, which names both. This program is one that
// a compiler for GPUs could have made: its image is the header of a CUDA file.
//
// From LLVM 19 on libomptarget shows a plugin no images for another machine.
// UNSUPPORTED: plugins-inside
//
// RUN: %host-clang %s -lomptarget -o %t
// RUN: %run --rc fail %t 2> %t.err
// RUN: %line error %t.err "load_binary: device 0 .rank 1 on host %hostname.*accelerator 0 .X86_64.*the image is: built for CUDA, not for the device.s X86_64"

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>

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
  void *arguments[6];
  uint64_t tripcount, flags;
  uint32_t teams[3], threads[3], memory;
} KernelArgs;

void __tgt_register_lib(Descriptor *all);
int __tgt_target_kernel(void *, int64_t device, int32_t teams, int32_t threads, void *key, KernelArgs *args);

int main(void) {
  static _Alignas(16) Elf64_Ehdr file = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                                         .e_type = ET_EXEC,
                                         .e_machine = 190,
                                         .e_version = EV_CURRENT,
                                         .e_ehsize = sizeof file};
  static char key;
  static Entry entry = {&key, "__omp_offloading_1_2_main_l3", 0, 0, 0};
  static Image image = {&file, &file + 1, &entry, &entry + 1};
  static Descriptor all = {1, &image, &entry, &entry + 1};
  __tgt_register_lib(&all);
  KernelArgs args = {.version = 2, .teams = {1}};
  return __tgt_target_kernel(NULL, 0, 1, 0, &key, &args) == 0 ? 0 : 1;
}
