// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What standin.c counts, and then what its last launch asked for, in the order of its file.

#ifndef STANDIN_H
#define STANDIN_H

enum Count { INIT, LOAD, ALLOC, SUBMIT, RETRIEVE, LAUNCH, SYNCHRONIZE, TEAMS, THREADS, TRIPCOUNT, COUNTS };

#endif
