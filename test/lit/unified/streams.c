// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// stdin, stdout and stderr of the program are the device's own in regions, whichever way a region gets at them: by name, by a
// pointer to a pointer of the program, in a structure of the program, as an argument. What both sides write comes in the
// order of the program, through a buffered stream too. The device's standard input is empty, the program's is not.
// (One stream at a time: Open MPI 5's launcher may print the end of stdout on stderr, see docs/user/limits.md.)
//
// RUN: %clang %s -o %t
// RUN: echo "a line" > %t.in
// RUN: %run1 %t stdout < %t.in > %t.out 2> %t.err && %line none %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefixes=CHECK,END
// RUN: %run1 %t stderr < %t.in > %t.out 2> %t.err && %line none %t.err
// RUN: FileCheck %s --input-file %t.err && FileCheck %s --input-file %t.out --check-prefix=END
// RUN: %clang -DMAPPED %s -o %t.mapped
// RUN: env OMPTARGET_MPI_UNIFIED=off %run1 %t.mapped stdout < %t.in > %t.out 2> %t.err && %line none %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefixes=CHECK,END
// RUN: env OMPTARGET_MPI_UNIFIED=off %run1 %t.mapped stderr < %t.in > %t.out 2> %t.err && %line none %t.err
// RUN: FileCheck %s --input-file %t.err && FileCheck %s --input-file %t.out --check-prefix=END
// REQUIRES: plugin
//
// CHECK:      {{^}}1 program
// CHECK-NEXT: {{^}}2 structure: fputs
// CHECK-NEXT: {{^}}3 structure: fprintf of 3, 3.5 and three
// CHECK-NEXT: {{^}}4 pointer: vfprintf of 4, 4.5 and four
// CHECK-NEXT: {{^}}5 pointer: fwrite, fputc, putc
// CHECK-NEXT: {{^}}6 program
// CHECK-NEXT: {{^}}7 name: fprintf of 7
// CHECK-NEXT: {{^}}8 program, 9 argument, 10 program
// END:        {{^}}11 program: a line

#ifdef MAPPED
#include "offload.h"
#else
#include "unified.h"
#endif
#include <stdarg.h>
#include <string.h>

// What a region names without a map: before LLVM 16 such a pointer is null in the region if nothing is mapped where it leads.
#define PRAGMA(text) _Pragma(#text)
#if defined(MAPPED) && __clang_major__ < 16
#define REGION(stream) PRAGMA(omp target map(to : stream) map(tofrom : log[0 : 1]))
#else
#define REGION(stream) PRAGMA(omp target map(tofrom : log[0 : 1]))
#endif

struct log {
  int lines;
  FILE *to, *from;
};

#pragma omp declare target
static int print(FILE *to, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vfprintf(to, format, arguments);
  va_end(arguments);
  return n;
}

static void put(FILE *to, const char *text) { fputs(text, to); }
#pragma omp end declare target

/// Both sides write to the stream in turn.
static void write_in_turn(FILE *stream) {
  struct log all = {0, stream, stdin}, *log = &all;
  FILE *pointers[] = {NULL, stream}, **at = &pointers[1];
  fprintf(stream, "1 program\n");
#pragma omp target map(tofrom : log[0 : 1])
  {
    fputs("2 structure: fputs\n", log->to);
    log->lines += fprintf(log->to, "3 structure: fprintf of %d, %.1f and %s\n", 3, 3.5, "three") > 0;
  }
#pragma omp target map(tofrom : log[0 : 1]) map(to : at[0 : 1])
  {
    log->lines += print(*at, "4 pointer: vfprintf of %d, %.1f and %s\n", 4, 4.5, "four") > 0;
    fwrite("5 pointer: fwrite", 1, 17, *at);
    fputs(", fput", *at);
    fputc('c', *at);
    fputs(", put", at[0]);
    putc('c', *at);
    log->lines += fputs("\n", *at) >= 0 && fflush(*at) == 0 && !ferror(*at);
  }
  CHECK(all.lines == 3 && all.to == stream);
  fprintf(stream, "6 program\n");
  // The name in the region is the program's variable.
  if (stream == stdout) {
    REGION(stdout)
    log->lines += fprintf(stdout, "7 name: fprintf of %d\n", 7) > 0;
  } else {
    REGION(stderr)
    log->lines += fprintf(stderr, "7 name: fprintf of %d\n", 7) > 0;
  }
  CHECK(all.lines == 4);
  fprintf(stream, "8 program, ");
#pragma omp target is_device_ptr(stream)
  put(stream, "9 argument, ");
  fprintf(stream, "10 program\n");
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  need_devices(1);
  write_in_turn(strcmp(argv[1], "stdout") == 0 ? stdout : stderr);
  struct log all = {0, NULL, stdin}, *log = &all;
#pragma omp target map(tofrom : log[0 : 1])
  {
    char line[100];
    log->lines += fgetc(log->from) == EOF && feof(log->from) && fgets(line, sizeof line, log->from) == NULL;
    int n = 5;
    log->lines += fscanf(log->from, "%d", &n) == EOF;
  }
  REGION(stdin)
  log->lines += fgetc(stdin) == EOF;
  CHECK(all.lines == 3);
  // The program's own input is as it was.
  char line[100];
  CHECK(fgets(line, sizeof line, stdin) != NULL);
  printf("11 program: %s", line);
  return 0;
}
