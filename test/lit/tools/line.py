#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the lines that the product itself wrote into a captured stderr.

    line.py error FILE REGEX...     exactly one error line, and it holds all of
                                    these, in any order
    line.py warning FILE REGEX...   the same with a warning
    line.py some-error FILE ...     at least one error line, one has them all
    line.py none FILE               neither error nor warning

Everything in FILE is repeated on stderr if that is not so.
"""

import re
import sys

PREFIX = "omptarget-mpi: "


def main():
    kind, path, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(path, errors="replace") as file:
        text = file.read()
    word = "" if kind == "none" else kind.replace("some-", "") + ": "
    # Open MPI 5's launcher sometimes writes the byte behind its own message
    # too, whatever that is; it then stands at the start of the next line.
    lines = [line for line in text.splitlines()
             if line.find(PREFIX + word) in (0, 1)]
    fitting = [line for line in lines
               if all(re.search(regex, line) for regex in wanted)]
    if kind == "none":
        good = not lines
    elif kind == "some-error":
        good = len(fitting) >= 1
    else:
        good = len(lines) == len(fitting) == 1
    if not good:
        print("line.py: wanted %s %s; %d such lines, %d of them fit; all:\n%s"
              % (kind, wanted, len(lines), len(fitting), text),
              file=sys.stderr)
    return 0 if good else 1


sys.exit(main())
