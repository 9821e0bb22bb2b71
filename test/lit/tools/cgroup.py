#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command in a cgroup of its own with a limit.

    cgroup.py memory MEBIBYTES COMMAND...
    cgroup.py pids THREADS COMMAND...
    cgroup.py --possible

Ends with the command's status. Root's, and for machines with these controllers of cgroup 1 or
2 whose root can have children; `--possible` tells.
"""

import os
import subprocess
import sys
import time


LIMITS = {
    "memory": (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
               ("/sys/fs/cgroup", "memory.max")),
    "pids": (("/sys/fs/cgroup/pids", "pids.max"), ("/sys/fs/cgroup", "pids.max")),
}


def make(controller):
    """A new group, and the name of its limit; None where there can be none."""
    for root, limit in LIMITS[controller]:
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


def is_possible(controller):
    made = make(controller)
    if made:
        remove(made[0])
    return made is not None


def main():
    controller = sys.argv[1]
    if controller == "--possible":
        return 0 if all(map(is_possible, LIMITS)) else 1
    made = make(controller)
    if not made:
        sys.exit("cgroup.py: no %s controller here" % controller)
    group, limit = made
    value = int(sys.argv[2]) << (20 if controller == "memory" else 0)
    try:
        with open(os.path.join(group, limit), "w") as file:
            file.write(str(value))

        def enter():
            with open(os.path.join(group, "cgroup.procs"), "w") as procs:
                procs.write(str(os.getpid()))

        return subprocess.run(sys.argv[3:], preexec_fn=enter).returncode
    finally:
        remove(group)


sys.exit(main())
