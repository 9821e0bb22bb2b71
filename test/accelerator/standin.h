// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What standin.c counts, what its last launch asked for, the bytes that all processes use, and those that MPI has sent from
// its memory and received there (test/lit/accelerators/Inputs/aware.c), in the order of its file.

#ifndef STANDIN_H
#define STANDIN_H

enum Count { INIT, LOAD, ALLOC, SUBMIT, RETRIEVE, LAUNCH, SYNCHRONIZE, TEAMS, THREADS, TRIPCOUNT, USED, SENT, RECEIVED, COUNTS };

#endif
