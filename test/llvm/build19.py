#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds LLVM 19's offload library with the plugin in it, as a user does.

    test/llvm/build19.py --mpi openmpi --plugins "mpi;host"

LLVM's sources come from Debian's source package, all else is installed
(scripts/setup llvm19). Prints the folder that it was installed in, which is
build/llvm/19/MPI-PLUGINS.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from source import fetch

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("offload", "cmake", "openmp/runtime/src/exports_test_so.txt")
# Of these only one release can be installed, and the tests of LLVM 16 need theirs.
PACKAGES = ("libomp5-19", "libomp-19-dev")


def fetch19():
    return fetch(19, FOLDERS, PACKAGES)


def installed(mpi, plugins):
    """Where the build for this MPI and these plugins goes."""
    return fetch19() / "-".join([mpi, *plugins.split(";")])


def run(log, *command):
    with open(log, "ab") as out:
        status = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL).returncode
    if status != 0:
        sys.stdout.write(log.read_text(errors="replace")[-4000:])
        sys.exit(f"build19: failed, see {log}: {' '.join(map(str, command))}")


def build(mpi, plugins):
    place = fetch19()
    omp = place / "packages" / "usr" / "lib" / "llvm-19" / "lib"
    headers = omp / "clang" / "19" / "include"
    prefix = installed(mpi, plugins)
    work = prefix.with_name(prefix.name + ".build")
    work.mkdir(exist_ok=True)
    log = work / "build.log"
    log.unlink(missing_ok=True)

    run(log, ROOT / "cmake" / "add-to-llvm", place / "source")
    run(
        log, "cmake", "-G", "Ninja", "-S", place / "source" / "offload", "-B", work,
        f"-DLIBOMPTARGET_PLUGINS_TO_BUILD={plugins}",
        f"-DMPI_C_COMPILER=mpicc.{mpi}",
        f"-DOMPTARGET_MPI_CARGO_DIR={place / f'cargo-{mpi}'}",
        f"-DCMAKE_INSTALL_PREFIX={prefix}",
        "-DCMAKE_C_COMPILER=clang-19", "-DCMAKE_CXX_COMPILER=clang++-19",
        "-DLLVM_DIR=/usr/lib/llvm-19/lib/cmake/llvm",
        "-DLIBOMPTARGET_BUILD_DEVICERTL_BCLIB=OFF",
        f"-DLIBOMP_STANDALONE={omp / 'libomp.so.5'}",
        f"-DLIBOMP_INCLUDE_DIR={headers}", f"-DLIBOMP_OMP_TOOLS_INCLUDE_DIR={headers}",
    )
    os.environ["CARGO_TERM_COLOR"] = "never"
    os.environ["LIBRARY_PATH"] = str(omp)  # llvm-omp-device-info asks for -lomp
    run(log, "cmake", "--build", work, "--target", "omptarget", "llvm-offload-mpi-device", "llvm-omp-device-info")
    run(log, "cmake", "--install", work, "--component", "omptarget")
    # A tool of LLVM's that a build on its own does not install.
    run(log, "cp", work / "llvm-omp-device-info", prefix / "bin")
    # The tests name it on every command line; only GPUs would use what is in it.
    run(log, "ar", "rcs", prefix / "lib" / "libomptarget.devicertl.a")
    return prefix


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="openmpi")
    parser.add_argument("--plugins", default="mpi")
    arguments = parser.parse_args()
    print(build(arguments.mpi, arguments.plugins))


if __name__ == "__main__":
    main()
