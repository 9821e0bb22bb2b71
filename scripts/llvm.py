#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds libomptarget and, from LLVM 21 on, liboffload of a release of LLVM with the
plugin "mpi" in them: libraries of the same names and interfaces as the system's own,
which LD_LIBRARY_PATH puts in their place.

    scripts/llvm.py 22 [--source DIR]

What is made is in build/llvm/RELEASE/lib, for 22 with flang's runtime as bitcode,
and `make` copies it to its prefix. It is for any MPI, for only libomptarget.rtl.mpi.so,
which it loads, has to do with MPI. LLVM's sources are those of the system's source
package llvm-toolchain-RELEASE, or a tree of LLVM given with --source.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from debian import BUILD, fetch, fetch_libomptarget

ROOT = BUILD.parent
RELEASES = ("19", "20", "21", "22")
# What is needed of LLVM's sources: the last two by plugins' common parts and by tests.
FOLDERS = ("offload", "cmake", "libc", "openmp/runtime/src/exports_test_so.txt")
# What LLVM's unit tests need besides.
GTEST = "third-party/unittest/googletest"


def sources(release):
    """LLVM's source tree of a release, fetched if it is not there yet."""
    return fetch(release, (*FOLDERS, GTEST)) / "source"


def openmp(release):
    """The folder that has the release's libomp and omp.h, in the layout of its packages."""
    for place in Path(f"/usr/lib/llvm-{release}"), BUILD / "llvm" / release / "packages/usr/lib" / f"llvm-{release}":
        if list(place.glob("lib/clang/*/include/omp.h")) and list(place.glob("lib/libomp.so.5")):
            return place
    fetch_libomptarget(release)
    return BUILD / "llvm" / release / "packages/usr/lib" / f"llvm-{release}"


def run(log, *command):
    with open(log, "ab") as out:
        status = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL).returncode
    if status != 0:
        sys.stdout.write(log.read_text(errors="replace")[-4000:])
        sys.exit(f"llvm: failed, see {log}: {' '.join(map(str, command))}")


def configure(log, release, source, work, *options):
    """Makes `work` ready for building LLVM's offload libraries with the plugin, and with
    these options for cmake."""
    omp = openmp(release)
    (headers,) = omp.glob("lib/clang/*/include")
    run(log, ROOT / "cmake" / "add-to-llvm", source)
    run(
        log, "cmake", "-G", "Ninja", "-S", source / "offload", "-B", work,
        "-DLIBOMPTARGET_PLUGINS_TO_BUILD=mpi;host",
        f"-DCMAKE_C_COMPILER=clang-{release}", f"-DCMAKE_CXX_COMPILER=clang++-{release}",
        f"-DLLVM_DIR=/usr/lib/llvm-{release}/lib/cmake/llvm",
        "-DLIBOMPTARGET_BUILD_DEVICERTL_BCLIB=OFF", "-DOFFLOAD_INCLUDE_TESTS=OFF",
        f"-DLIBOMP_STANDALONE={omp / 'lib' / 'libomp.so.5'}",
        f"-DLIBOMP_INCLUDE_DIR={headers}", f"-DLIBOMP_OMP_TOOLS_INCLUDE_DIR={headers}",
        # LLVM's whole build sets these; without them the one looks for a target that is
        # nowhere, and the library exports all of LLVM.
        "-DFFI_STATIC_LIBRARIES=", "-DLLVM_HAVE_LINK_VERSION_SCRIPT=ON",
        *options,
    )  # fmt: skip


def build(release, source):
    place = BUILD / "llvm" / release
    work = place / "build"
    work.mkdir(parents=True, exist_ok=True)
    log = work / "build.log"
    log.unlink(missing_ok=True)
    configure(
        log, release, source, work,
        # make builds that part, for each MPI.
        "-DOMPTARGET_MPI_BUILD_LIBRARY=OFF",
        # What is laid out elsewhere must not look for anything here.
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
        # For tools (OMPT) it opens libomp.so, and that name only the release's own folder has.
        f"-DCMAKE_SHARED_LINKER_FLAGS=-Wl,-rpath,/usr/lib/llvm-{release}/lib",
    )  # fmt: skip
    libraries = {"omptarget": "libomptarget"}
    if int(release) >= 21:
        libraries["LLVMOffload"] = "libLLVMOffload"
    run(log, "cmake", "--build", work, "--target", *libraries)

    made = place / "lib.new"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    for library in libraries.values():
        # The name that programs know: that of the system's own.
        (file,) = [f for f in work.glob(f"**/{library}.so.{release}.*") if f.resolve().parent == f.parent]
        run(log, "strip", "--strip-unneeded", "-o", made / file.name, file)
    if release == "22":
        # flang of this release can take it into regions before it optimizes them.
        run(
            log, f"clang-{release}", "-O2", "-fPIC", "-emit-llvm", "-c", ROOT / "fortran" / "runtime.c",
            "-o", made / f"libomptarget-flang-{release}.bc",
        )  # fmt: skip
    shutil.rmtree(place / "lib", ignore_errors=True)
    made.rename(place / "lib")
    return place / "lib"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", choices=RELEASES)
    parser.add_argument("--source", type=Path, help="a source tree of LLVM")
    arguments = parser.parse_args()
    start = time.monotonic()
    made = build(arguments.release, arguments.source or sources(arguments.release))
    names = ", ".join(sorted(file.name for file in made.iterdir()))
    print(f"llvm: made {names} in {made.relative_to(ROOT)} in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    os.environ.pop("MAKEFLAGS", None)
    main()
