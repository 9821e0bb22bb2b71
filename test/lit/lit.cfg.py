# -*- Python -*-
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration of the project's own tests: target regions over MPI.

    lit -v test/lit --param mpi=openmpi --param prefix=$PWD/build/openmpi

Parameters:
  mpi       openmpi or mpich: the launcher, and with it the expected library
  prefix    absolute path of the install prefix under test; the tests of two
            MPIs in one job look for the other MPI's build beside it
  llvm      14 to 24: the release of compiler and libomptarget (with 23 and 24 that of 22);
            by default the one of test/releases.py for this system. From 19 on the prefix
            must have the libomptarget with the plugin in it (make llvm19)
  plugin    "stock" runs what can run there on libomptarget's own host plugin,
            without MPI: what fails there is a wrong test, not a wrong plugin
  gpu       the architecture of the GPU for which programs are compiled (sm_90, gfx90a; scripts/check-gpu), or "host":
            LLVM's host plugin in its place
  thorough  1 repeats more often what tests repeat, and runs each of their variants
  user      "ordinary" runs all jobs as an ordinary user, where lit itself runs as root; "closed" forbids their processes
            besides to access each other's memory

Everything is written below build/lit/.
"""

import os
import shutil
import socket
import subprocess
import sys

import lit.formats

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
sys.path.append(os.path.join(root, "test"))
import releases  # noqa: E402

llvm = lit_config.params.get("llvm", releases.MAIN)


def tool(*names):
    """The first of these programs that the machine has, of this LLVM if it can be."""
    folders = ":".join(["%s/bin" % packages, "/usr/lib/llvm-%s/bin" % llvm, prefix + "/bin"])
    for name in [names[0] + "-" + llvm, *names, names[0] + "-" + releases.MAIN]:
        path = shutil.which(name) or shutil.which(name, path=folders)
        if path:
            return path
    lit_config.fatal("not found: " + " or ".join(names))


packages = releases.folder(llvm)
if not packages:
    lit_config.fatal("no libomptarget of LLVM %s: run scripts/setup" % llvm)

mpi = lit_config.params.get("mpi", "openmpi")
if mpi not in ("openmpi", "mpich"):
    lit_config.fatal("mpi must be openmpi or mpich, not " + mpi)
prefix = lit_config.params.get("prefix", os.path.join(root, "build", mpi))
stock = lit_config.params.get("plugin") == "stock"
user = lit_config.params.get("user")
if user not in (None, "ordinary", "closed"):
    lit_config.fatal("user must be ordinary or closed, not " + user)
other_mpi = "mpich" if mpi == "openmpi" else "openmpi"
other_prefix = os.path.join(os.path.dirname(prefix), other_mpi)
slot = releases.slot(llvm, prefix)
device = os.path.join(prefix, "bin", "llvm-offload-mpi-device")
other_device = os.path.join(other_prefix, "bin", "llvm-offload-mpi-device")
if not stock and not os.path.exists(device):
    lit_config.fatal("no device program at %s: build first" % device)
if not stock and not os.path.exists(slot):
    lit_config.fatal("there is no %s: make llvm%s first" % (slot, llvm))

config.name = "omptarget-mpi (%s, LLVM %s)" % ("stock" if stock else mpi, llvm)
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".c", ".cpp", ".f90", ".test"]
config.excludes = ["Inputs", "include", "tools"]
config.test_source_root = here
config.test_exec_root = os.path.join(
    root, "build", "lit", "-".join(["stock" if stock else mpi, llvm] + [user] * bool(user)))

is_root = os.getuid() == 0 and not user
# A process may access the memory of another one of the same user.
scope = "/proc/sys/kernel/yama/ptrace_scope"
if not stock and user != "closed" and (
        is_root or not os.path.exists(scope) or open(scope).read().strip() == "0"):
    config.available_features.add("reach")
# Hosts made of namespaces (tools/hosts.py) are root's to make.
if not stock and is_root and all(map(shutil.which, ("ip", "nsenter", "unshare"))):
    config.available_features.add("hosts")
# So are groups of processes with a limit of memory or of threads.
cgroup = [sys.executable, os.path.join(here, "tools", "cgroup.py")]
if not stock and is_root and subprocess.run(
        cgroup + ["--possible"], capture_output=True).returncode == 0:
    config.available_features.add("cgroup")
# Jobs of an ordinary user, if that one can read the files here.
as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
if not stock and os.getuid() == 0 and shutil.which("setpriv") and subprocess.run(
        as_user + ["test", "-x", device], capture_output=True).returncode == 0:
    config.available_features.add("ordinary-user")
elif user:
    lit_config.fatal("only root can run jobs as another user, which must be able to read the files here")
if user:
    # That user's programs write into folders that tests make.
    os.umask(0)
cpus = len(os.sched_getaffinity(0))
config.available_features.add("stock" if stock else mpi)
# Open MPI 4.1 and 5 differ in what they can.
launcher = shutil.which("mpirun." + mpi) or "mpirun"
if mpi == "openmpi" and not stock:
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    config.available_features.add("openmpi5" if "(Open MPI) 5" in version else "openmpi4")
# The stand-ins for accelerators and drivers, which tests with LLVM 16 have beside all else, run no programs for a GPU.
gpu = lit_config.params.get("gpu")
if gpu:
    config.available_features.add("gpu")
thorough = lit_config.params.get("thorough") == "1"
if thorough:
    config.available_features.add("thorough")
if not gpu or llvm != "16":
    config.available_features.add("llvm" + llvm)
# Regions on a GPU have no system calls, and no libraries of the processor's.
if gpu not in (None, "host"):
    config.available_features.add("no-system")
if llvm == releases.MAIN:
    config.available_features.add("main-llvm")
# Without MPI devices regions can run in the program's own process. (In LLVM 18 this plugin
# takes the place of the host's, and LLVM 22's can't call what the compiler of 23 makes.)
if stock or llvm not in ("18", *releases.LIBRARIES):
    config.available_features.add("host-plugin")
# Plugins are part of libomptarget, and all of its devices can be used together.
if int(llvm) >= 19:
    config.available_features.add("plugins-inside")
# An image's destructors run at the program's end.
if int(llvm) >= 18:
    config.available_features.add("unloads")
# The Offload API as a C program uses it: header and library.
offload_api = "/usr/lib/llvm-%s" % llvm
if int(llvm) >= 22 and not stock and os.path.exists(offload_api + "/include/offload/OffloadAPI.h"):
    config.available_features.add("offload-api")
if not stock:
    config.available_features.add("plugin")
    # Devices run regions through their node's own libomptarget.
    if os.environ.get("OMPTARGET_MPI_BACKEND") == "offload":
        config.available_features.add("accelerators")
        if llvm == "18":
            # Where Debian's libomptarget does not look for its plugins.
            config.environment["LD_LIBRARY_PATH"] = "/usr/lib/llvm-18/lib"
if cpus > 1:
    config.available_features.add("multicore")
# A build whose tables are tiny (make TINY=1).
if prefix.endswith("-tiny"):
    config.available_features.add("tiny-limits")
other_slot = releases.slot(llvm, other_prefix)
if not stock and os.path.exists(other_device) and os.path.exists(other_slot) and shutil.which(
        "mpirun." + other_mpi):
    config.available_features.add("both-mpis")
if shutil.which("valgrind"):
    config.available_features.add("valgrind")
mpicc = shutil.which("mpicc." + mpi) or shutil.which("mpicc")
if mpicc:
    config.available_features.add("mpicc")

# lit starts tests in an almost empty environment; these are worth a run: OMP_NUM_THREADS=8,
# devices that are worker processes, and such as are copied at every point of quiet
# (OMPTARGET_MPI_SPARES=1 OMPTARGET_MPI_JOURNAL=0), OMPTARGET_MPI_BACKEND=offload.
config.environment["OMP_TARGET_OFFLOAD"] = "MANDATORY"
passed_on = ["OMP_NUM_THREADS", "OMPTARGET_MPI_BACKEND", "OMPTARGET_MPI_SPARES", "OMPTARGET_MPI_JOURNAL", "KNOWN_FAULTS"]
for name in passed_on + (["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"] if gpu else []):
    if name in os.environ:
        config.environment[name] = os.environ[name]
config.environment["PYTHONDONTWRITEBYTECODE"] = "1"
# Open MPI 5 does not start without HOME, and warns of a machine without a network.
config.environment["HOME"] = os.environ.get("HOME", "/")
config.environment["OMPI_MCA_reachable"] = "weighted"
# Its mpirun writes some of what comes on stderr to stdout: not stacks, among what tests look for.
config.environment["OMPI_MCA_opal_signal"] = ""
if os.getuid() == 0:
    for name in ("OMPI", "PRTE"):
        config.environment[name + "_ALLOW_RUN_AS_ROOT"] = "1"
        config.environment[name + "_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
# The mpirun of Open MPI 5.0.7 crashes where a job has several parts.
if not stock and subprocess.run(
        [launcher, "-np", "1", "true", ":", "-np", "1", "true"],
        env=dict(os.environ, **config.environment), capture_output=True).returncode == 0:
    config.available_features.add("colon")
clang = tool("clang-" + llvm)
for name in ("OMPI_CC", "MPICH_CC"):
    config.environment[name] = clang
for name in ("OMPI_CXX", "MPICH_CXX"):
    config.environment[name] = tool("clang++")

# run.py has a limit of its own for each job; this one catches all the rest.
try:
    import psutil  # lit needs it for a limit
    lit_config.maxIndividualTestTime = 1500
except ImportError:
    pass

flags = " -O2 -Wall -Wextra -Werror -Wno-pass-failed -I%s/include%s" % (
    here, " -DSTOCK" if stock else "")


def offload_flags(release):
    target = ["-fopenmp", *releases.target(gpu)]
    return " ".join([flags] + target + releases.flags(release))


offload = offload_flags(llvm)
# Compiles for the libomptarget of LLVM 18 too.
clang17 = shutil.which("clang-17")
if clang17:
    config.available_features.add("clang17")
flang = releases.flang(llvm)
if flang:
    config.available_features.add("flang")
fortran = " ".join(
    ["-O2 -cpp -fopenmp -fopenmp-version=52 -fopenmp-targets=x86_64-pc-linux-gnu"]
    + ["-L%s -Wl,-rpath,%s" % (packages / "lib", packages / "lib")]
    + ["-L%s/lib -lomptarget-flang" % prefix]
    + ["-DSTOCK"] * stock)
tools = os.path.join(here, "tools")
run = "%s %s/run.py --mpi %s --prefix %s" % (sys.executable, tools, mpi, prefix)
run += " --stock" if stock else " --slot " + slot
if user:
    run = " ".join(as_user) + " " + run
if user == "closed":
    closed = os.path.join(config.test_exec_root, "closed.so")
    os.makedirs(config.test_exec_root, exist_ok=True)
    subprocess.run([clang, "-shared", "-fPIC", "-o", closed, os.path.join(tools, "closed.c")], check=True)
    run += " --preload " + closed
    # Open MPI would ask Yama itself.
    for component in ("sm", "vader"):
        config.environment["OMPI_MCA_btl_%s_single_copy_mechanism" % component] = "none"
    config.environment["OMPI_MCA_smsc"] = "^cma"

# A longer name stands before a shorter one that begins it.
config.substitutions += [
    ("%clangxx", tool("clang++") + offload),
    ("%clang17", str(clang17) + offload_flags("17")),
    ("%clang", clang + offload),
    ("%flang", "%s %s" % (flang, fortran)),
    # As in docs/user/guide.md: the runtime's functions become part of regions.
    ("%inlined", "-Xflang -mlink-builtin-bitcode -Xflang %s/lib/libomptarget-flang-%s.bc" % (prefix, llvm)),
    ("%plain-clang", clang + flags),
    ("%mpicc", (mpicc or "mpicc") + offload),
    ("%plain-mpicc", (mpicc or "mpicc") + flags),
    ("%mpicxx", (mpicc or "mpicc").replace("mpicc", "mpicxx") + offload),
    ("%mpirun", launcher),
    # %runN: N devices, the program last; %run: see run.py for what it takes.
    ("%run1", run + " --ranks hd"),
    ("%run2", run + " --ranks hdd"),
    ("%run3", run + " --ranks hddd"),
    ("%again", "%s %s/again.py %s" % (sys.executable, tools, 10 if thorough else 3)),
    ("%known", "%s %s/known.py" % (sys.executable, tools)),
    # A command as it is: nothing is set for it.
    ("%bare", run + " --no-mpirun --slot="),
    ("%run", run),
    ("%launch", os.path.join(prefix, "bin", "llvm-offload-mpirun")),
    ("%hosts", "%s %s/hosts.py" % (sys.executable, tools)),
    ("%cgroup", " ".join(cgroup)),
    ("%as-user", "env" if user else " ".join(as_user)),
    ("%slot", slot),
    ("%other-device", other_device),
    ("%other-slot", other_slot),
    ("%device", device),
    ("%prefix", prefix),
    ("%root", root),
    ("%line", "%s %s/line.py" % (sys.executable, tools)),
    ("%messages", "%s %s/messages.py" % (sys.executable, tools)),
    ("%ends", "%s %s/ends.py --mpi %s --prefix %s" % (sys.executable, tools, mpi, prefix)),
    ("%trace", "%s %s/trace.py" % (sys.executable, tools)),
    ("%answer", "%s %s/answer.py" % (sys.executable, tools)),
    ("%python", sys.executable),
    ("%together", "%s %s/together.py" % (sys.executable, tools)),
    ("%LIBRARY", mpi.upper()),
    ("%llvm", llvm),
    ("%hostname", socket.gethostname()),
    ("%examples", os.path.join(root, "examples")),
    ("%cpus", str(cpus)),
    (r"\bFileCheck\b", tool("FileCheck")),
    ("%offload-api", "-I%s/include/offload -L%s/lib" % (offload_api, offload_api)),
    ("%ar", tool("llvm-ar", "ar")),
    ("%nm", tool("llvm-nm", "nm")),
    ("%readelf", tool("llvm-readelf", "readelf")),
    ("%omp-device-info", tool("llvm-omp-device-info", "llvm-offload-device-info")),
]
