#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs several copies of a command at the same time; all must end with 0.

    together.py COUNT COMMAND...
"""

import subprocess
import sys

copies = [subprocess.Popen(sys.argv[2:]) for _ in range(int(sys.argv[1]))]
sys.exit(1 if any([copy.wait() for copy in copies]) else 0)
