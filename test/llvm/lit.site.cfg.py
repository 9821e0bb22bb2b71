# -*- Python -*-
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a build of LLVM would have written for the tests of libomptarget: where the
# compiler and the libraries are. The suite's own lit.cfg does the rest; then the
# commands that run a program are put behind mpirun. ./run calls lit on this
# folder with the parameters used here:
#   release  16 or later
#   suite    the suite's folder
#   work     where the tests are built and run
#   prefix   the plugin's build
#   mpi      openmpi or mpich; absent: LLVM's own host plugin, without mpirun
#   gpu      the architecture of the GPU that the tests are compiled for; absent, or "host": none
#   devices  how many devices a program gets; absent: one

import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path += [here, os.path.dirname(here)]
import fortran  # noqa: E402
import releases  # noqa: E402

param = lit_config.params.get


release, prefix = param("release"), param("prefix")
target = host = "x86_64-pc-linux-gnu" if int(release) < 20 else "x86_64-unknown-linux-gnu"
gpu = param("gpu", "host")
if gpu != "host":
    target = "nvptx64-nvidia-cuda" if gpu.startswith("sm_") else "amdgcn-amd-amdhsa"
resources = subprocess.check_output([f"clang-{release}", "-print-resource-dir"], text=True).strip()
system = os.path.realpath(resources + "/../..")

installed = releases.folder(release)
headers = str(next(installed.glob("lib/clang/*/include")))
omptarget = omp = system if release == "16" else str(installed / "lib")

config.test_c_compiler = f"clang-{release}"
config.test_cxx_compiler = f"clang++-{release}"
flang = releases.flang(release)
config.test_fortran_compiler = f"{flang} -L{prefix}/lib -lomptarget-flang" if flang else ""
config.test_compiler_features = ["clang", f"clang-{release}"]
config.test_openmp_flags = "-fopenmp"
config.test_extra_flags = releases.QUICK_LINK
if gpu != "host":
    config.test_extra_flags += f" -Xopenmp-target={target} -march={gpu} " + os.environ.get("GPU_FLAGS", "")
config.cuda_path = config.cuda_libdir = config.cuda_test_arch = config.amdgpu_test_arch = ""
config.libomptarget_obj_root = param("work")
config.bin_llvm_tools_dir = prefix + "/bin"
config.library_dir = config.llvm_library_dir = config.llvm_library_intdir = omptarget
config.llvm_lib_directory = system
config.omp_header_directory = headers
config.omp_host_rtl_directory = omp
config.operating_system = "Linux"
config.libomptarget_current_target = target
# The others are those that some test names; lit.cfg makes them do nothing.
config.libomptarget_all_targets = list(dict.fromkeys([
    target,
    host,
    "aarch64-unknown-linux-gnu",
    "amdgcn-amd-amdhsa",
    "nvptx64-nvidia-cuda",
    "powerpc64-ibm-linux-gnu",
    "powerpc64le-ibm-linux-gnu",
    "s390x-ibm-linux-gnu",
]))
config.libomptarget_filecheck = f"FileCheck-{release}"
config.libomptarget_not = f"not-{release}"
config.libomptarget_debug = config.libomptarget_has_libc = config.libomptarget_test_pgo = False
config.offload_device_info = f"/usr/lib/llvm-{release}/bin/llvm-offload-device-info"
config.offload_tblgen = "false"  # of LLVM's build
config.has_libomptarget_ompt = True

lit_config.load_config(config, os.path.join(param("suite"), "lit.cfg"))
if flang:
    config.test_format = fortran.Format()

if param("mpi"):
    # lit starts from an almost empty environment; mpirun hands this one on.
    config.environment["HOME"] = os.path.expanduser("~")
    places = [releases.slot(release, prefix)]
    if not os.path.exists(f"/usr/lib/llvm-{release}/lib/libomp.so"):
        # libomptarget opens it for tools. Here that release is only unpacked.
        places.append(f"{releases.folder(release)}/lib")
    if gpu != "host":
        places.append(os.environ.get("LD_LIBRARY_PATH", ""))  # a driver's
    config.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, places))
    for name in ("OMPTARGET_MPI_BACKEND", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in os.environ:
            config.environment[name] = os.environ[name]
    # Open MPI 5 warns of a machine without a network, on the stderr that tests read.
    config.environment["OMPI_MCA_reachable"] = "weighted"
    if os.geteuid() == 0:
        config.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        config.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"

    # Tests append arguments, so the program comes last. They read its stdout and
    # stderr as one stream, which mpirun would carry apart and join in any order:
    # the program (a shell becomes it) writes both to one.
    mpirun = {"openmpi": "mpirun.openmpi --oversubscribe", "mpich": "mpirun.mpich"}
    device = prefix + "/bin/llvm-offload-mpi-device"
    program = "sh -c 'exec \"$@\" 2>&1' sh %t"
    launch = f"{mpirun[param('mpi')]} -np {int(param('devices', '1')) + 1} {device} {program}"

    # `not --crash` wants to see a program die of a signal, but mpirun lives on
    # and returns the host program's SIGABRT or SIGSEGV as a status: 134 or 139
    # from Open MPI, 6 or 11 from MPICH, or 15 if MPICH's launcher has to kill
    # (9) the device after it. A shell in between turns that back into a signal.
    abort = "sh -c '\"$@\"; case $? in 6|11|15|134|139) kill -ABRT $$;; esac' sh"

    fails = f"%not --crash {abort} {launch}"
    behind_mpirun = {
        "%libomptarget-run-" + target: launch,
        "%libomptarget-run-fail-" + target: fails,
    }
    found = set(behind_mpirun) & {name for name, _ in config.substitutions}
    if found != set(behind_mpirun):
        lit_config.fatal("lit.cfg of the suite names its commands differently")
    config.substitutions = [
        (name, behind_mpirun.get(name, command)) for name, command in config.substitutions
    ]
    # One test does not use the short form of that.
    config.substitutions.insert(0, ("%not --crash %libomptarget-run-generic", fails))
    # One names its program itself.
    config.substitutions.insert(0, ("(?<=env LIBOMPTARGET_INFO=32 )%t", launch))
