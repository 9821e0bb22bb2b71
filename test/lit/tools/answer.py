#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers a line that a running command prints.

    answer.py LINE FILE COMMAND...

Starts the command with a pipe as its stdout, creates FILE as soon as LINE has
come through that pipe, passes everything on, and ends with the command's
status, or 1 if the line never came.
"""

import os
import subprocess
import sys


def main():
    wanted, path, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    if os.path.exists(path):
        os.remove(path)
    seen = False
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        print(line, end="", flush=True)
        if line.rstrip("\n") == wanted:
            seen = True
            with open(path, "w"):
                pass
    status = process.wait()
    if os.path.exists(path):
        os.remove(path)
    return status if seen else status or 1


sys.exit(main())
