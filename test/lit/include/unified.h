// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// offload.h for programs whose regions use the program's memory: `requires` stands before the first region.

#ifndef UNIFIED_H
#define UNIFIED_H

#pragma omp requires unified_shared_memory

#include "offload.h"

// Memory of the device: what omp_target_alloc gives is the program's here.
void *llvm_omp_target_alloc_device(size_t, int);

#endif
