# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which releases of LLVM the tests compile with on this system, and where what their
programs need is."""

import os
import platform
import shutil
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


# The release whose libomp and libomptarget the programs of some compilers are linked with:
# Debian has no sources of these compilers' own.
LIBRARIES = {"23": "22", "24": "22"}


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


# ld checks whether all that libomptarget needs, libLLVM among it, is complete, which takes
# longer than all the rest of a small program's build.
QUICK_LINK = "-Wl,--allow-shlib-undefined"


def flags(release):
    """What the compiler of a release gets on its command line to build a program for
    offloading."""
    quick = ["-Wno-unused-command-line-argument", QUICK_LINK]
    place = folder(release)
    if release == "16" or not place:
        return quick
    library = folder(LIBRARIES.get(release, release)) / "lib"
    headers = next(place.glob("lib/clang/*/include"))
    return [*quick, f"-I{headers}", f"-L{library}", f"-Wl,-rpath,{library}"]


def target(gpu):
    """The compiler's options for target regions on a GPU of that architecture (sm_90, gfx90a), or on the host (None, or
    "host", which stands in for a GPU). GPU_FLAGS has more for a GPU: --cuda-path=…"""
    if gpu in (None, "host"):
        return ["-fopenmp-targets=x86_64-pc-linux-gnu"]
    # clang warns of a CUDA newer than itself, and of the linker's options where it does not link.
    quiet = ["-Wno-unknown-cuda-version", "-Wno-unused-command-line-argument"]
    return [f"--offload-arch={gpu}", "-DGPU", *quiet, *os.environ.get("GPU_FLAGS", "").split()]


def flang(release):
    """The Fortran compiler that a release is tested with: 22's always, the others' never, for
    fortran/runtime.c is what flang 22 calls."""
    if release != "22":
        return None
    path = shutil.which("flang-22")
    if not path:
        raise SystemExit("flang-22 is not installed: apt-get install flang-22 (scripts/root13 --llvm 22 has it)")
    return path


def slot(release, prefix):
    """The folder for LD_LIBRARY_PATH with which a release's libomptarget finds the plugin
    (LLVM 18 looks for another name) or, from 19 on, is replaced by one that has it
    (make llvm19)."""
    release = LIBRARIES.get(release, release)
    place = Path(prefix) / "lib" / "omptarget-mpi"
    return str(place / f"llvm{release}" if int(release) >= 18 else place)
