#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command in a cgroup of its own with so much memory.

    cgroup.py MEBIBYTES COMMAND...
    cgroup.py --possible

Ends with the command's status. Root's, and for machines with a memory controller of cgroup 1 or
2 whose root can have children; `--possible` tells.
"""

import os
import subprocess
import sys
import time


def make():
    """A new group, and the name of its limit; None where there can be none."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        group = os.path.join(root, "omptarget-test-%d" % os.getpid())
        try:
            os.mkdir(group)
        except OSError:
            continue
        # With version 2 the root may not hand the controller on.
        if os.path.exists(os.path.join(group, limit)):
            return group, limit
        os.rmdir(group)
    return None


def remove(group):
    for _ in range(100):  # processes that have just ended may still be in it
        try:
            os.rmdir(group)
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("cgroup.py: %s is still in use" % group)


def main():
    made = make()
    if not made:
        sys.exit("cgroup.py: no memory controller here")
    group, limit = made
    try:
        if sys.argv[1] == "--possible":
            return 0
        with open(os.path.join(group, limit), "w") as file:
            file.write(str(int(sys.argv[1]) << 20))

        def enter():
            with open(os.path.join(group, "cgroup.procs"), "w") as procs:
                procs.write(str(os.getpid()))

        return subprocess.run(sys.argv[2:], preexec_fn=enter).returncode
    finally:
        remove(group)


sys.exit(main())
