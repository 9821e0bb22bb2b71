#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""again.py TIMES COMMAND...: repeats a command TIMES times; stops at the first failure."""

import subprocess
import sys

for time in range(1, int(sys.argv[1]) + 1):
    status = subprocess.run(sys.argv[2:]).returncode
    if status:
        sys.exit("again.py: ended with status %d the %d. time" % (status, time))
