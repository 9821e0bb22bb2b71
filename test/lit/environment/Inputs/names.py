# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program under odd names, or a copy of an install prefix under odd names:

    names.py programs FOLDER LAUNCHER PROGRAM
    names.py prefixes FOLDER PREFIX PROGRAM

Names are bytes, which a test's own command lines can't have all.
"""

import os
import shutil
import subprocess
import sys

NAMES = [b"a b it's \"x\"", b"new\nline\ttab", b"\xff\xfe" + "\U0001f600".encode(), b"$HOME * `id`",
         b"a=b", b"-n", b"%p,#\\"]
ARGUMENTS = [b"one two", b"'", b'"', b"l1\nl2", b"\xff", "\U0001f600".encode(), b"", b"-n", b"$x",
             b"`id`", b"\\", b"*", b"a=b", b"--", b"%p", b"a\tb", b"x" * 100_000]
# What separates folders in LD_LIBRARY_PATH.
REFUSED = [b"co:lon", b"semi;colon"]


def run(command, folder, wanted, status=0):
    result = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    if result.returncode != status or wanted not in result.stdout + result.stderr:
        sys.exit(f"{command}\nin {folder}: status {result.returncode}\n{result.stdout}\n{result.stderr}")


def main():
    kind, folder, what, program = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)
    for name in NAMES + (REFUSED if kind == "prefixes" else []):
        place = os.path.join(folder.encode(), name)
        if kind == "programs":
            os.makedirs(place)
            shutil.copy(program, os.path.join(place, name))
            echo = b"".join(b"argument %s.\n" % a for a in ARGUMENTS) + b"1 devices, sum 1\n"
            for path in (os.path.join(place, name), b"./" + name):
                run([what, "-n", "1", "--", path, *ARGUMENTS], place, echo)
        else:
            shutil.copytree(what.encode(), place, symlinks=True)
            refused = name in REFUSED
            run([os.path.join(place, b"bin", b"llvm-offload-mpirun"), "-n", "2", program], folder,
                b"LD_LIBRARY_PATH can't name" if refused else b"2 devices, sum 3\n", int(refused))
            shutil.rmtree(place)


main()
