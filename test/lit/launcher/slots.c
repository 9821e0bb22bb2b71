// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several programs in one slot of a job: MPI starts once there. The first program has the devices, another one reports as
// many and ends at its first use of one, with the reason; the script goes on. Where each program spawns its devices, as
// in a script with Open MPI, all have some.
//
// RUN: %clang %s -o %t
// RUN: printf 'import subprocess, sys\nfor i in (1, 2): print(subprocess.run(sys.argv[1:], **KEPT).returncode, flush=True)\n' > %t.py
// RUN: sed s/KEPT/{}/ %t.py > %t.closing.py
// RUN: sed 's/KEPT/{"close_fds": False}/' %t.py > %t.keeping.py
//
// By hand: two programs of a script, a program that needs no device beside one that does, one that executes itself.
// RUN: %run2 --rc 3 sh -c '%t; %t; [ $? = 1 ] && %t help && exit 3' > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefix=FIRST --implicit-check-not=region
// RUN: %line error %t.err "in this slot of the job by process" "has ended" "llvm-offload-mpirun for each program" "--spawn"
// FIRST: 2 devices, region: device
// FIRST-NEXT: 2 devices{{$}}
// RUN: %run1 --rc fail %t exec > %t.out 2> %t.err
// RUN: %line some-error %t.err "in this slot of the job by this process, before it executed a program"
// Children of a program that goes on.
// RUN: %run2 %t children 1 > %t.out 2> %t.err
// RUN: FileCheck %s --input-file %t.out --check-prefix=PARENT --implicit-check-not=region
// RUN: grep -c "error: MPI was started in this slot of the job by process .*, which still runs" %t.err | grep -x 4
// PARENT: 2 devices, region: device
// PARENT: 2 devices, region: device
// A parent that closes all descriptors, also the one that leads to MPICH's launcher.
// RUN: %if openmpi %{ %run1 %python %t.closing.py %t 2> %t.err | FileCheck %s --check-prefix=CLOSED %}
// RUN: %run1 %python %t.keeping.py %t 2> %t.err | FileCheck %s --check-prefix=CLOSED
// RUN: %line error %t.err "in this slot of the job"
// CLOSED: region: device
// CLOSED-NEXT: 0
// CLOSED-NEXT: 1
// RUN: %if mpich %{ env OMPTARGET_MPI_START_TIMEOUT=2 %run1 --rc fail %python %t.closing.py %t > %t.out 2> %t.err %}
// RUN: %if mpich %{ grep -c "error: the connection to MPI's launcher (PMI_FD) is closed.*close_fds=False" %t.err | grep -x 2 %}
//
// The launcher.
// RUN: %if openmpi %{ %bare %launch -n 2 sh -c '%t; %t; %t' | FileCheck %s --check-prefix=ALL %}
// RUN: %if openmpi %{ %bare %launch -n 2 %python %t.closing.py %t | FileCheck %s --check-prefix=PYTHON %}
// RUN: %if openmpi %{ %bare %launch -n 2 --spawn %t children 0 | FileCheck %s --check-prefix=CHILDREN %}
// RUN: %if openmpi %{ %bare %launch -n 2 --spawn %t exec | FileCheck %s --check-prefix=ALL %}
// RUN: %if openmpi %{ %launch --dry-run -n 2 sh -c %t | FileCheck %s --check-prefix=DIRECT %}
// A script with an MPI application, whose MPI_Init would be the only one of its slot.
// RUN: %if openmpi && mpicc %{ %mpicc -DOWN_MPI %s -o %t.mpi %}
// RUN: %if openmpi && mpicc %{ %bare %launch -n 2 sh -c '%t.mpi; %t; %t.mpi' | FileCheck %s --check-prefix=ALL %}
// RUN: %if openmpi && mpicc %{ env OMPTARGET_MPI_DEVICES=2 %run --ranks h --rc 1 sh -c '%t.mpi; %t' > %t.out 2> %t.err %}
// RUN: %if openmpi && mpicc %{ FileCheck %s --input-file %t.out --check-prefix=APPLICATION --implicit-check-not=region %}
// RUN: %if openmpi && mpicc %{ %line error %t.err "in this slot of the job by process" "has ended" %}
// APPLICATION: 2 devices, region: device
// RUN: %if openmpi %{ %launch --dry-run -n 2 --launcher mpirun sh -c %t | FileCheck %s --check-prefix=RANK %}
// RUN: %if openmpi %{ %launch --dry-run --info -n 2 sh -c %t | FileCheck %s --check-prefix=RANK %}
// RUN: %if openmpi %{ env OMPTARGET_MPI_DEVICES_PER_RANK=2 %launch --dry-run sh -c %t | FileCheck %s --check-prefix=DIRECT %}
// RUN: %if openmpi %{ %launch --dry-run -n 2 --program %t %python | FileCheck %s --check-prefix=RANK %}
// RUN: not %launch --spawn -r 2 %t 2>&1 | FileCheck %s --check-prefix=NO
// ALL: 2 devices, region: device
// ALL-NEXT: 2 devices, region: device
// PYTHON: region: device
// PYTHON-NEXT: 0
// PYTHON-NEXT: region: device
// PYTHON-NEXT: 0
// CHILDREN-COUNT-6: 2 devices, region: device
// DIRECT: env LD_LIBRARY_PATH={{.*}} OMPTARGET_MPI_DEVICES=2 {{.*}}sh -c
// RANK: mpirun{{.*}} -np 3 {{.*}}llvm-offload-mpi-device
// NO: '--spawn' cannot be used with '--ranks <N>'

#include "offload.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#ifdef OWN_MPI
#include <mpi.h>
#endif

extern char **environ;

static int run_region(void) {
  int there = 0;
#pragma omp target map(from : there)
  there = getpid();
  printf("%d devices, region: %s\n", omp_get_num_devices(),
         there == getpid() ? "host" : "device");
  fflush(stdout);
  return there == getpid();
}

static int status_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Starts this program in four ways; each ends with this status.
static void start_children(char *program, int expected) {
  char *arguments[] = {program, NULL};
  CHECK(status_of(system(program)) == expected);
  FILE *pipe = popen(program, "r");
  char line[100];
  while (fgets(line, sizeof line, pipe))
    fputs(line, stdout);
  CHECK(status_of(pclose(pipe)) == expected);
  pid_t child;
  int status;
  CHECK(posix_spawn(&child, program, NULL, NULL, arguments, environ) == 0);
  CHECK(waitpid(child, &status, 0) == child && status_of(status) == expected);
  child = fork();
  if (child == 0) {
    execv(program, arguments);
    _exit(9);
  }
  CHECK(waitpid(child, &status, 0) == child && status_of(status) == expected);
  fflush(stdout);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
#ifdef OWN_MPI
  MPI_Init(&argc, &argv);
  int wrong = run_region();
  MPI_Finalize();
  return wrong;
#endif
  if (!strcmp(what, "help")) {
    printf("%d devices\n", omp_get_num_devices());
    return 0;
  }
  if (run_region())
    return 2;
  if (!strcmp(what, "exec"))
    execl(argv[0], argv[0], NULL);
  if (!strcmp(what, "children")) {
    start_children(argv[0], atoi(argv[2]));
    return run_region();
  }
  return 0;
}
