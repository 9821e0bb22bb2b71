// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A library's thread-local variable: clang accepts none that a region names.

static _Thread_local long number = 11;

long *own(void) { return &number; }
