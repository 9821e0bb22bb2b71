//===- gpuintrin.h - clang's header of this name, for an MPI device -------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With it the device programs of LLVM's OffloadAPI tests, which are for GPUs, are
// compiled for x86-64: a kernel is a function that is called once for each launch.
//
//===----------------------------------------------------------------------===//

#ifndef OMPTARGET_MPI_GPUINTRIN_H
#define OMPTARGET_MPI_GPUINTRIN_H

#include <stdint.h>

#define __gpu_kernel __attribute__((visibility("default")))
// What nobody defines, as memory of a group whose size is told at the launch, is at address 0.
#define __gpu_local __attribute__((weak))

static inline uint32_t __gpu_num_threads(int Dimension) { return 1; }
static inline uint32_t __gpu_thread_id(int Dimension) { return 0; }
static inline uint32_t __gpu_block_id(int Dimension) { return 0; }
static inline void __gpu_sync_threads(void) {}

#endif // OMPTARGET_MPI_GPUINTRIN_H
