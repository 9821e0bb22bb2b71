#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command that meets a known fault in some runs: one of an MPI or of LLVM, or a documented limit.

    known.py FAULT COMMAND...

A run that fails and shows the fault (its name in FAULTS) is counted and repeated, at most twice. Any other
failure is final, and so is a fault that three runs show. Prints how often it occurred; scripts/check has
all that occurred in a suite added to a file, KNOWN_FAULTS, and reports their number.
"""

import os
import re
import subprocess
import sys

RUNS = 3
# By name: what it is, and what a failed run that met it has printed.
FAULTS = {
    "mpirun-abort": (
        "Open MPI 4.1's mpirun crashed or hung after an abort (PMIx_server_finalize)",
        # Nothing of the plugin's runs in mpirun.
        r"run\.py: ended by signal (6|7|11), not with|run\.py: no end within (.*\n)*.* in PMIx_server_finalize ",
    ),
    "prterun-crash": (
        "Open MPI 5.0.7's launcher crashed, on either host",
        r"hosts\.py: ended by signal (6|7|11)|PRTE has lost communication with a remote daemon",
    ),
    "abort-text": (
        "MPICH's launcher lost what a rank printed before it aborted",
        r"(?m)^nothing was printed$",
    ),
    "own-lock": (
        "exit in a signal handler hung at a lock of libomptarget's that its thread had",
        # In the stacks: exit, called by a signal handler, waits in libomptarget for a mutex, and the handler has
        # interrupted the same thread at a mutex of libomptarget.
        r"pthread_mutex_lock .*\n.*libomptarget\.so.*\n.*__tgt_unregister_lib (.*\n)+?.*<signal handler called>\n"
        r"(.*(lll_|pthread_mutex_).*\n)+.*libomptarget\.so",
    ),
    "stack-by-chance": (
        "the program had memory where the device's first stack was (docs/user/unified-memory.md)",
        r"error: .*the program has memory at .* chance places them: start again",
    ),
}


def occurred(fault, text):
    """True if the output of a failed run shows the fault, which is then counted."""
    what, shown = FAULTS[fault]
    if not re.search(shown, text):
        return False
    print("known fault: " + what, flush=True)
    if os.environ.get("KNOWN_FAULTS"):
        with open(os.environ["KNOWN_FAULTS"], "a") as file:
            file.write(what + "\n")
    return True


def main():
    fault, command = sys.argv[1], sys.argv[2:]
    for number in range(RUNS):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", text=True)
        print(done.stdout, end="", flush=True)
        if done.returncode == 0:
            sys.exit(print("known.py: %d of %d runs met %s" % (number, number + 1, fault)))
        if not occurred(fault, done.stdout):
            sys.exit("known.py: run %d failed, and not by %s" % (number + 1, fault))
    sys.exit("known.py: all of %d runs met %s" % (RUNS, fault))


if __name__ == "__main__":
    main()
