// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An OMPT tool that says when libomp starts and ends it.

#include <stdint.h>
#include <stdio.h>

struct tool {
  int (*initialize)(void *lookup, int device, void *data);
  void (*finalize)(void *data);
  uint64_t data;
};

static int initialize(void *lookup, int device, void *data) {
  (void)lookup, (void)device, (void)data;
  fputs("tool: begin\n", stderr);
  return 1;
}

static void finalize(void *data) {
  (void)data;
  fputs("tool: end\n", stderr);
}

struct tool *ompt_start_tool(unsigned version, const char *runtime) {
  (void)version, (void)runtime;
  static struct tool tool = {initialize, finalize, 0};
  return &tool;
}
