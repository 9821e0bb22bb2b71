#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a table of ways to end a program, and compares statuses and times.

    ends.py [--spawn] --mpi MPI --prefix DIR PROGRAM FILE

Lines of FILE that begin with `// ROW:` are rows, `STATUS MPICH REFERENCE RUNS ARGUMENT...`:

  STATUS     the status with Open MPI
  MPICH      the status with MPICH, whose launcher changes some
  REFERENCE  `same` if LLVM's host plugin, for which the program gets HOST_PLUGIN=1,
             must give STATUS too; `-` if it crashes or hangs itself, now and then
  RUNS       how often the row runs
  ARGUMENT   what the program is called with

A status may be `fail`, any but 0, or `any`. A run may take 3 s more than five plain
ones (the program called with `exit`), which are timed again before a run counts as
late: the machine may have become slow meanwhile. A run that hangs in libomptarget,
because a signal came while libomptarget had locked something, is counted (known.py)
and repeated. Each run must leave neither processes nor files in /dev/shm; the file of libomp's registration
does not count.
"""

import argparse
import os
import subprocess
import sys
import time

import known
import run

MARK = "// ROW:"
PLAIN = "3", ["exit"]
ALLOWANCE, FACTOR = 3, 5
# Ends a run that hangs; what is late is judged by its time.
TIMEOUT = 60


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mpi", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--spawn", action="store_true",
                        help="the program spawns its device")
    parser.add_argument("program")
    parser.add_argument("file")
    return parser.parse_args()


def rows(path):
    with open(path) as file:
        lines = [line[len(MARK):].split() for line in file if line.startswith(MARK)]
    for status, mpich, reference, runs, *words in lines:
        yield (status, mpich), reference, int(runs), words


def one_run(args, status, words, stock=False):
    """What is wrong with one run, as text, and how long it took."""
    line = [sys.executable, run.__file__, "--mpi", args.mpi, "--prefix", args.prefix,
            "--rc", status, "--timeout", str(TIMEOUT)]
    environment = dict(os.environ)
    if stock:
        line.append("--stock")
        environment["HOST_PLUGIN"] = "1"
    elif args.spawn:
        line.append("--no-mpirun")
        environment["OMPTARGET_MPI_DEVICES"] = "1"
    before = run.shared_files()
    begin = time.monotonic()
    done = subprocess.run(line + [args.program] + words, env=environment,
                          capture_output=True, errors="replace")
    taken = time.monotonic() - begin
    files = run.files_left(before, "", set())
    wrong = done.stderr if done.returncode else ""
    return wrong + ("left files: %s\n" % files if files else ""), taken


def limit_now(args):
    """How long a run may take, by how long a plain one takes now."""
    wrong, taken = one_run(args, *PLAIN)
    if wrong:
        sys.exit("a plain run: " + wrong)
    return ALLOWANCE + FACTOR * taken


def row_failures(args, statuses, reference, runs, words, limit):
    """What is wrong with a row, and the limit for the next one."""
    if reference == "same":
        wrong, _ = one_run(args, statuses[0], words, stock=True)
        if wrong:
            return "with the host plugin: " + wrong, limit
    status = statuses[args.mpi == "mpich"]
    for number in range(runs):
        wrong, taken = one_run(args, status, words)
        if wrong and known.occurred("own-lock", wrong):
            wrong, taken = one_run(args, status, words)
        if not wrong and taken > limit:
            limit = max(limit, limit_now(args))
            wrong, taken = one_run(args, status, words)
            if not wrong and taken > limit:
                wrong = "took %.1f s, not at most %.1f\n" % (taken, limit)
        print("%s: %.1f s of %.1f" % (" ".join(words), taken, limit), flush=True)
        if wrong:
            return "run %d: %s" % (number + 1, wrong), limit
    return "", limit


def main():
    args = arguments()
    table = list(rows(args.file))
    if not table:
        sys.exit("no rows in " + args.file)
    limit, failed = limit_now(args), False
    for statuses, reference, runs, words in table:
        wrong, limit = row_failures(args, statuses, reference, runs, words, limit)
        if wrong:
            print("%s: %s" % (" ".join(words), wrong), file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
