// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What standin.c counts, what its last launch asked for, the bytes that all processes use, and those that MPI has sent from
// its memory and received there (test/lit/accelerators/Inputs/aware.c), in the order of its file. The last four are calls that
// pin memory of the process and free it, and copies from such memory to the accelerator and back.

#ifndef STANDIN_H
#define STANDIN_H

enum Count {
  INIT, LOAD, ALLOC, SUBMIT, RETRIEVE, LAUNCH, SYNCHRONIZE, TEAMS, THREADS, TRIPCOUNT, USED, SENT, RECEIVED,
  PIN, UNPIN, FROM_PINNED, TO_PINNED, COUNTS
};

#endif
