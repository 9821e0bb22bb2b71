// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Small data of a device on the program's node goes through memory that both share: a
// region's message and answer carry none of it, and data alone needs no message.
//
// REQUIRES: plugin, reach
// An accelerator's memory can't be shared.
// UNSUPPORTED: accelerators
//
// RUN: %clang %S/count.c -o %t
// RUN: env -u OMPTARGET_MPI_SPARES LIBOMPTARGET_DEBUG=1 %run1 %t 2> %t.err
// RUN: %messages %t.err > %t.out
// RUN: FileCheck %s --match-full-lines --input-file %t.out
//
// CHECK:      empty: 1 out ([[#%u,EMPTY:]] bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: int: 1 out ({{[0-9][0-9]}} bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: scalars and 4 KiB: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: resident: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 0 bulk
// CHECK-NEXT: alloc and free: 0 out (0 bytes), 0 back (0 bytes), 0 bulk
// CHECK-NEXT: target data: 0 out (0 bytes), 0 back (0 bytes), 0 bulk
// CHECK-NEXT: 1 MiB in: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 1 bulk
// CHECK-NEXT: 1 MiB out: 1 out ({{[0-9]+}} bytes), 1 back (9 bytes), 1 bulk
