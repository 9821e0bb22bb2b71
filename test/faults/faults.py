# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of faults that test/faults/run provokes.

A row is data: what the program does (a mode of program.c), what is done to its job, and
how that must end. A new fault is a new row, if need be with a new mode of program.c.
"""

import os
import shutil
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One row. {folder} in scripts and variables is the job's own folder."""

    name: str
    # For docs/user/reliability.md: what is done to the job, and what happens.
    done: str
    happens: str
    # What the program does, see program.c.
    mode: str
    # What is done when the program has begun: ("signal", WHOM, NAME), where WHOM is
    # program, device (its second one), spare (of a device) or launcher; ("wait", SECONDS); ("cut", LINK);
    # ("gone", WHOM, SECONDS): none of these is there any more so soon.
    actions: list = field(default_factory=list)
    # Whether the program comes to its end all the same.
    ok: bool = False
    # The launcher may return 0 although the job failed.
    any_status: bool = False
    # A regular expression that a line of stderr matches: the cause. None: any or no line.
    cause: str = None
    # Seconds within which the fault must be noticed, and before which it can't be.
    limit: float = 10
    least: float = 0
    environment: dict = field(default_factory=dict)
    # Shell commands in front of the second device, of the program, of the launcher.
    device: str = ""
    program: str = ""
    around: str = ""
    # In front of that shell, as `unshare --mount`.
    inside: str = ""
    # What the shell is to do with the output of all, and when the job is gone.
    output: str = ""
    after: str = ""
    # The program starts without a launcher and spawns its devices.
    alone: bool = False
    # Hosts of namespaces: the program is on the first, both devices on the second. By
    # default all are on this one.
    hosts: str = ""
    # What is different of it with an MPI: {"openmpi": {…}}.
    differs: dict = field(default_factory=dict)
    # Names in NEEDS.
    needs: list = field(default_factory=list)
    # The only MPI that it is for.
    only: str = ""
    # It belongs to `make check`.
    quick: bool = False


def no_hosts():
    if os.getuid() != 0:
        return "hosts made of namespaces need root"
    missing = [tool for tool in ("ip", "nsenter", "unshare") if not shutil.which(tool)]
    return "there is no " + missing[0] if missing else None


def no_root():
    return None if os.getuid() == 0 else "needs root"


CGROUP = "/sys/fs/cgroup/memory"


def no_memory_cgroup():
    if not os.access(CGROUP, os.W_OK):
        return "no memory cgroup (v1) can be made here"
    return None


# What a fault needs of the machine: why it is not there, or None.
NEEDS = {"hosts": no_hosts, "root": no_root, "cgroup": no_memory_cgroup}

# What launchers or this project say when a process was killed.
KILLED = r"signal 9|EXIT CODE: 9|Killed|KILLED|omptarget-mpi: "
TERMINATED = r"signal 15|EXIT CODE: 15|Terminated|omptarget-mpi: "
SILENT = r"omptarget-mpi: error: device %s \(.*has not answered for .* while the program waited"
TAKEN_OVER = "omptarget-mpi: warning: .*signal.*; its spare takes over"
# A spare that never has to do again what it would do differently, as telling its own number.
SPARE = {"OMPTARGET_MPI_SPARES": "1", "OMPTARGET_MPI_JOURNAL": "0"}
DEVICE = {"kernel": "a kernel runs", "copy": "64 MiB are copied back and forth", "exchange": "64 MiB are copied "
          "between devices", "regions": "short regions run", "later": "no device is in use",
          "unmapped": "a region uses the program's memory"}

# Its launcher needs a standard output that can be written.
MPICH_FAILS = {"mpich": {"ok": False, "cause": "write error|fcntl failed"}}
# SIGTERM to it loses the status of one job in ten, also of plain MPI programs.
MPICH_LOSES = {"mpich": {"any_status": True}}
# It needs a folder for temporary files.
OPEN_MPI_FAILS = {"openmpi": {"ok": False, "cause": "unable to create|orte_init failed|No space left|orte_.*failed"}}


def on_device(signal, modes, quick, cause, environment=None, limit=10):
    """The device gets a signal while it does this or that."""
    word = {"SIGKILL": "killed", "SIGTERM": "ended", "SIGSTOP": "stopped"}[signal]
    with_heartbeat = "; heartbeat 2 s" if environment else ""
    for mode in modes:
        happens = {"SIGSTOP": "the heartbeat ends the job"}.get(signal, "the job ends")
        done = "%s to the device while %s%s" % (signal, DEVICE[mode], with_heartbeat)
        # By default a region of a program without `requires` may not use the program's memory.
        variables = dict(environment or {}, **({"OMPTARGET_MPI_UNIFIED": "on"} if mode == "unmapped" else {}))
        yield Fault("device-%s-%s" % (word, mode), done, happens, mode, [("wait", 0.3), ("signal", "device", signal)],
                    cause=cause, quick=mode in quick, environment=variables, limit=limit,
                    least=2 if environment else 0,
                    # Processes of a node write into one queue of MPICH's (UCX): what comes behind that which
                    # a process was about to write when it was stopped does not reach the other device.
                    differs={"mpich": {"cause": SILENT % "[01]"}} if (signal, mode) == ("SIGSTOP", "exchange") else {})


TABLE = [
    *on_device("SIGKILL", DEVICE, ["kernel", "copy"], KILLED),
    *on_device("SIGTERM", ["kernel", "copy"], ["kernel"], TERMINATED),
    *on_device("SIGSTOP", DEVICE, ["kernel", "copy"], SILENT % 1, {"OMPTARGET_MPI_HEARTBEAT": "2"}),
    Fault("device-stopped-default", "SIGSTOP to the device while a kernel runs; default heartbeat",
          "the heartbeat ends the job", "kernel", [("signal", "device", "SIGSTOP")],
          cause=SILENT % 1, limit=15),
    Fault("device-stopped-end", "SIGSTOP to the device before the program ends",
          "the shutdown detects it after 10 s; the job ends", "end", [("signal", "device", "SIGSTOP")],
          cause="no answer at the end of the program from device 1", limit=15),
    Fault("device-paused", "SIGSTOP to the device, SIGCONT 2.5 s later; heartbeat 2 s",
          "the program continues", "pause",
          [("signal", "device", "SIGSTOP"), ("wait", 2.5), ("signal", "device", "SIGCONT")],
          ok=True, environment={"OMPTARGET_MPI_HEARTBEAT": "2"}),
    Fault("device-busy", "a kernel runs for 6 s; heartbeat 2 s", "the program continues", "pause",
          ok=True, environment={"OMPTARGET_MPI_HEARTBEAT": "2"}, quick=True),
    Fault("program-paused", "SIGSTOP to the program, SIGCONT 5 s later; heartbeat 2 s",
          "the program continues", "pause",
          [("signal", "program", "SIGSTOP"), ("wait", 5), ("signal", "program", "SIGCONT")],
          ok=True, environment={"OMPTARGET_MPI_HEARTBEAT": "2"}),
    *[Fault("program-killed-" + mode, "SIGKILL to the program while " + DEVICE[mode], "the job ends", mode,
            [("wait", 0.3), ("signal", "program", "SIGKILL")], cause=KILLED, quick=mode == "copy")
      for mode in ("kernel", "copy", "exchange")],
    Fault("program-aborted-copy", "SIGABRT to the program while 64 MiB are copied", "the job ends", "copy",
          [("wait", 0.3), ("signal", "program", "SIGABRT")],
          cause="signal 6|EXIT CODE: 6|Aborted|ABORTED", quick=True,
          # A device that reads its memory meanwhile may be the first to end.
          differs={"mpich": {"cause": "EXIT CODE: |omptarget-mpi: error"}}),
    *[Fault("launcher-%s-%s" % (word, mode), "%s to mpirun while %s" % (number, DEVICE[mode]), "all processes end",
            mode, [("wait", 0.3), ("signal", "launcher", number)], quick=word == "killed" and mode == "kernel",
            differs=MPICH_LOSES if word == "ended" else {})
      for number, word in (("SIGKILL", "killed"), ("SIGTERM", "ended")) for mode in ("kernel", "copy", "later")],
    *[Fault("far-killed-" + mode, "SIGKILL to a device on another host while " + DEVICE[mode], "the job ends", mode,
            [("wait", 0.5), ("signal", "device", "SIGKILL")], hosts="alpha,beta", needs=["hosts"], cause=KILLED)
      for mode in ("kernel", "copy", "regions")],
    *[Fault("far-unmapped-" + word, "%s to %s on another host while a region uses the program's memory" % (number, what),
            "the heartbeat ends the job" if word == "stopped" else "the job ends", "fetch",
            [("wait", 0.7), ("signal", whom, number)], hosts="alpha,beta", needs=["hosts"], cause=cause,
            environment={"OMPTARGET_MPI_HEARTBEAT": "2", "OMPTARGET_MPI_UNIFIED": "on"})
      for word, number, whom, what, cause in (
          ("killed", "SIGKILL", "device", "a device", KILLED), ("stopped", "SIGSTOP", "device", "a device", SILENT % 1),
          ("program", "SIGKILL", "program", "the program, all devices being", KILLED))],
    Fault("far-stopped", "SIGSTOP to a device on another host while 64 MiB are copied", "the heartbeat ends "
          "the job", "copy", [("wait", 0.5), ("signal", "device", "SIGSTOP")], hosts="alpha,beta", needs=["hosts"],
          cause=SILENT % 1, environment={"OMPTARGET_MPI_HEARTBEAT": "2"}),
    Fault("far-program-paused", "SIGSTOP to the program while 64 MiB are copied, SIGCONT 9 s later, all devices being "
          "on another host; heartbeat 2 s", "the program continues", "copy-some",
          [("wait", 0.5), ("signal", "program", "SIGSTOP"), ("wait", 9), ("signal", "program", "SIGCONT")],
          hosts="alpha,beta", needs=["hosts"], ok=True, environment={"OMPTARGET_MPI_HEARTBEAT": "2"}, limit=20),
    Fault("far-program-killed", "SIGKILL to the program, all devices being on another host", "the job ends", "copy",
          [("wait", 0.5), ("signal", "program", "SIGKILL")], hosts="alpha,beta", needs=["hosts"], cause=KILLED),
    *[Fault("cut-" + mode, "the network to the device's host is cut while " + DEVICE[mode],
            "the heartbeat or Open MPI's daemons end the job", mode, [("wait", 0.5), ("cut", "port1")],
            hosts="alpha,beta", needs=["hosts"], limit=15,
            environment={"OMPTARGET_MPI_UNIFIED": "on" if mode == "unmapped" else "auto"},
            cause="omptarget-mpi: error|lost communication with a remote daemon")
      for mode in ("kernel", "copy", "exchange", "regions", "later", "unmapped")],
    Fault("cut-device", "the network to the device's host is cut while the program is stopped (SIGSTOP), so that "
          "nothing notifies the launcher", "the devices detect it within 15 s", "copy",
          [("wait", 0.5), ("signal", "program", "SIGSTOP"), ("cut", "port1"), ("gone", "device", 15),
           ("signal", "program", "SIGCONT")], hosts="alpha,beta", needs=["hosts"], limit=30, only="mpich",
          cause="omptarget-mpi: error"),
    *[Fault("kernel-" + how, "a kernel " + what, "the call fails; the program ends", "crash-" + how, quick=True,
            cause="omptarget-mpi: error: .*kernel .*failed on device 1 .*" + said, limit=20)
      for how, what, said in (
          ("segv", "writes to an unmapped address", "SIGSEGV"), ("fpe", "divides by 0", "SIGFPE"),
          ("ill", "executes an illegal instruction", "SIGILL"), ("bus", "raises SIGBUS", "SIGBUS"),
          ("abort", "calls abort()", "abort"), ("overflow", "recurses without end", "stack overflow"))],
    Fault("kernel-exit", "a kernel calls exit(0)", "the program ends", "crash-exit", quick=True, limit=20,
          cause="omptarget-mpi: error: .*kernel .*failed on device 1 .*it called exit, with status 0"),
    Fault("kernel-endless", "a kernel runs too long, with OMPTARGET_MPI_KERNEL_TIMEOUT=2",
          "the call fails; the program ends", "kernel", quick=True, limit=20,
          cause="omptarget-mpi: error: .*kernel .*failed on device 1 .*not ended within 2s", least=2,
          environment={"OMPTARGET_MPI_KERNEL_TIMEOUT": "2"}),
    *[Fault("worker-killed-" + mode, "SIGKILL to the device while %s, with a spare" % DEVICE[during],
            "its spare takes over; the program continues", mode, [("wait", 0.5), ("signal", "device", "SIGKILL")],
            ok=True, cause=TAKEN_OVER, environment=SPARE, limit=20, quick=mode == "pause")
      for mode, during in (("pause", "kernel"), ("copy-some", "copy"))],
    Fault("worker-crashes-again", "a kernel writes to an unmapped address, with a spare",
          "the spare crashes there too; the call fails; the program ends", "crash-segv", environment=SPARE, limit=20,
          cause="omptarget-mpi: error: .*SIGSEGV.*and so it did when a spare did the same again"),
    Fault("spare-killed", "SIGKILL to the device's spare while short regions run, 0.5 s later to the device",
          "another spare takes over; the program continues", "regions-some",
          [("wait", 0.5), ("signal", "spare", "SIGKILL"), ("wait", 0.5), ("signal", "device", "SIGKILL")], ok=True,
          # Else it is copied again and again.
          environment=dict(SPARE, OMPTARGET_MPI_JOURNAL="4G"), limit=20, cause="omptarget-mpi: warning: the spare of .* was killed"),
    Fault("spare-and-worker-killed", "SIGKILL to the device's spare while a kernel runs, then to the device",
          "the job ends", "kernel",
          [("wait", 0.5), ("signal", "spare", "SIGKILL"), ("wait", 1), ("signal", "device", "SIGKILL")],
          environment=SPARE, cause="omptarget-mpi: error: .*is lost, and so is its spare"),
    Fault("device-late", "a device starts 3 s late", "the program continues", "work", ok=True, device="sleep 3",
          quick=True),
    Fault("device-never", "a device never starts, with a start limit of 2 s", "the limit is reported; the job ends",
          "work", cause="has waited 2 s for .* to start MPI", device="exec sleep 100",
          environment={"OMPTARGET_MPI_START_TIMEOUT": "2"}, quick=True),
    Fault("memory-device-cgroup", "a kernel uses 768 MiB on a device limited to 256 MiB (a cgroup)",
          "the OOM killer kills the device; the job ends", "much", cause=KILLED, needs=["root", "cgroup"],
          device="mkdir {cgroup}; echo 268435456 > {cgroup}/memory.limit_in_bytes; echo $$ > {cgroup}/cgroup.procs",
          after="rmdir {cgroup}", limit=20),
    Fault("memory-device-addresses", "a device has 1 GiB of address space (ulimit -v)", "startup fails", "work",
          cause="omptarget-mpi: error", device="ulimit -v 1048576", limit=20),
    Fault("memory-device-arena", "a region needs 768 MiB on a device that has 256 MiB (OMPTARGET_MPI_MEMORY)",
          "the allocation fails", "much", cause="no room for 805306368 bytes on device 1",
          environment={"OMPTARGET_MPI_MEMORY": "256M"}, quick=True, limit=20),
    Fault("memory-program-addresses", "the program has 1 GiB of address space (ulimit -v)", "startup fails", "work",
          cause="omptarget-mpi: error", program="ulimit -v 1048576", limit=20),
    Fault("trace-full", "a trace to a full disk (/dev/full)", "an error is reported; the program continues", "work",
          ok=True, cause="omptarget-mpi: error: the trace can't be written", quick=True,
          environment={"OMPTARGET_MPI_TRACE": "/dev/full"}),
    Fault("trace-nowhere", "a trace to a folder that does not exist", "startup fails", "work",
          cause="omptarget-mpi: error.*/nowhere/trace", environment={"OMPTARGET_MPI_TRACE": "{folder}/nowhere/trace"},
          limit=20),
    Fault("output-full", "a launcher whose output goes to a full disk (/dev/full)",
          "with Open MPI the program continues; MPICH's launcher ends the job", "print", ok=True, output=" > /dev/full",
          differs=MPICH_FAILS),
    Fault("output-closed", "a launcher without a standard output",
          "with Open MPI the program continues; MPICH's launcher does not start", "print", ok=True, output=" >&-",
          differs=MPICH_FAILS),
    Fault("output-full-alone", "a program that spawns its devices, with its output to a full disk (/dev/full)",
          "a warning is printed; the program continues", "print", ok=True, output=" > /dev/full", alone=True,
          quick=True, cause="omptarget-mpi: warning: what regions print can't be written", only="openmpi"),
    Fault("temporary-missing", "no folder for temporary files", "the program continues", "work", ok=True, limit=20,
          environment={"TMPDIR": "{folder}/nowhere"}),
    Fault("temporary-full", "a full disk for temporary files",
          "Open MPI can't start, and says so; with MPICH the program continues", "work", ok=True, needs=["root"],
          inside="unshare --mount", differs=OPEN_MPI_FAILS, limit=20,
          around="mount -t tmpfs -o size=4k none {folder}/tmp; cat /dev/zero > {folder}/tmp/full 2> /dev/null"),
    Fault("temporary-read-only", "a read-only file system for temporary files",
          "Open MPI can't start, and says so; with MPICH the program continues", "work", ok=True, needs=["root"],
          inside="unshare --mount", differs=OPEN_MPI_FAILS, limit=20, around="mount -t tmpfs -o ro none {folder}/tmp"),
]
