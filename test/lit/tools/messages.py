#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts the messages between host and devices: messages.py FILE

FILE is the stderr of a program under LIBOMPTARGET_DEBUG=1, which prints there a
line "begin NAME" before and "end" after each thing to be counted. Prints for each:

    NAME: 1 out (85 bytes), 1 back (13 bytes), 0 bulk
"""

import re
import sys

OUT = re.compile(r"--> to .*: message \d+ of (\d+) bytes")
BACK = re.compile(r"--> from rank \d+: message of (\d+) bytes")


def main():
    name = None
    with open(sys.argv[1], errors="replace") as file:
        for line in file:
            if line.startswith("begin "):
                name = line.split(None, 1)[1].strip()
                out, back, bulk = [], [], 0
            elif line.startswith("end") and name:
                print(f"{name}: {len(out)} out ({sum(out)} bytes), "
                      f"{len(back)} back ({sum(back)} bytes), {bulk} bulk")
                name = None
            elif name:
                out += map(int, OUT.findall(line))
                back += map(int, BACK.findall(line))
                bulk += "--> bulk data" in line


main()
