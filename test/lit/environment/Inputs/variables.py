# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command with odd environment variables: variables.py [--memory] COMMAND..."""

import os
import sys

ODD = {
    b"OMPTARGET_HUGE": b"x" * 120_000,
    b"OMP_HUGE": b"y" * 120_000,
    b"HUGE": b"z" * 120_000,
    b"OMPTARGET_LINES": b"a\nOMPTARGET_MPI_MEMORY=1\n",
    b"LINES": b"\n\nOMP_TARGET_OFFLOAD=disabled",
    b"OMPTARGET_BYTES": b"\xff\xfe",
    b"OMPTARGET_\xff": b"\xff",
    b"BYTES": b"\xff",
    b"OMPTARGET_MPI_TRACE": b"",
    b"OMPTARGET_MPI_HOSTS": b"",
    b"OMPTARGET_EMPTY": b"",
    b"KMP_": b"",
}

words = sys.argv[1:]
if words[0] == "--memory":
    words.pop(0)
    ODD = {b"OMPTARGET_MPI_MEMORY": b"\xff1\x1b[31m\n"}
os.execvpe(words[0], words, os.environb | ODD)
