// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What standin.c counts, what its last launch asked for, and the bytes that all processes use, in the order of its file.

#ifndef STANDIN_H
#define STANDIN_H

enum Count { INIT, LOAD, ALLOC, SUBMIT, RETRIEVE, LAUNCH, SYNCHRONIZE, TEAMS, THREADS, TRIPCOUNT, USED, COUNTS };

#endif
