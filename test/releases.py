# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which releases of LLVM the tests compile with on this system, and where what their
programs need is."""

import os
import platform
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def system():
    """(ID, VERSION_ID) of /etc/os-release."""
    try:
        words = platform.freedesktop_os_release()
    except OSError:
        words = {}
    return words.get("ID"), words.get("VERSION_ID")


# What tests that name no release take: the newest that loads plugins and of which the
# system has compiler and libomptarget. (From 19 on libomptarget has them built in.)
MAIN = "17" if system() == ("debian", "13") else "16"


def folder(release):
    """Where libomp, libomptarget and omp.h of a release are: unpacked by scripts/setup, for
    of these packages only one release can be installed, or installed all the same. None
    if nowhere."""
    unpacked = ROOT / "build" / "llvm" / release / "packages" / "usr" / "lib" / f"llvm-{release}"
    installed = Path(f"/usr/lib/llvm-{release}")
    for place in unpacked, installed:
        if list(place.glob("lib/clang/*/include/omp.h")):
            return place
    return None


def flags(release, prefix=None):
    """What the compiler of a release needs on its command line to build a program for
    offloading; from 19 on libomptarget is that of `prefix`."""
    place = folder(release)
    if release == "16" or not place:
        return []
    libraries = [place / "lib"]
    if int(release) >= 19 and prefix:
        libraries.insert(0, Path(prefix) / "lib")
    words = ["-Wno-unused-command-line-argument", "-I%s" % next(place.glob("lib/clang/*/include"))]
    for library in libraries:
        words += [f"-L{library}", f"-Wl,-rpath,{library}"]
    return words
