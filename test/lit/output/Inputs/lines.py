# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lines.py FILE DEVICES LINES: checks that the output of ../lines.c is whole."""

import re
import sys

path, devices, lines = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
printed = open(path, encoding="ascii").read().split("\n")
last = "".join("<%d>" % d for d in range(devices))
assert printed[-2:] == [last, ""], "the end is %r" % printed[-2:]
due = [0] * devices
torn = longs = 0
for line in printed[:-2]:
    short = re.fullmatch(r"device (\d) line (\d+) of those that it prints", line)
    long = re.fullmatch(r"device (\d) begins(.{60000}) and ends", line)
    if short and int(short[2]) == due[int(short[1])]:
        due[int(short[1])] += 1
    elif long and set(long[2]) == {chr(ord("a") + int(long[1]))}:
        longs += 1
    else:
        torn += 1
        print("torn: %r" % line[:100], file=sys.stderr)
assert torn == 0 and due == [lines] * devices, (torn, due)
assert longs == devices * lines // 1000, longs
