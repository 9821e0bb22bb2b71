#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts one MPI job of device processes and a program, and judges its end.

    run.py --mpi openmpi --prefix DIR --ranks hdd [options] PROGRAM [ARGUMENT...]

--ranks has one letter for each rank: d for a device process, c for one that
runs regions on the processor whatever the others do, h for the host program. If all programs come first, the device executable is started for all
ranks and becomes the program where it shall; else the launcher gets a part of
the job for each of them, separated by colons. Output and input are those of the caller. Ends with 0 if the job ended
in time, with the status that was asked for, and if no process of it is left.
Every process of the job is known by a variable in its environment, so that
neither names nor other jobs matter.
"""

import argparse
import itertools
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

MARK = "OMPTARGET_TEST_JOB"


def executable(pid):
    """What a process executes; if that is the dynamic loader, as in devices, what that executes."""
    path = os.readlink("/proc/%s/exe" % pid)
    if not os.path.basename(path).startswith("ld-"):
        return path
    with open("/proc/%s/cmdline" % pid) as file:
        return (file.read().split("\0") + [path])[1] or path


def processes(token):
    """The processes of this job as {pid: path of the executable}."""
    mark = (MARK + "=" + token).encode()
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if mark in file.read().split(b"\0"):
                    found[int(pid)] = executable(pid)
        except OSError:
            pass  # it has ended, or is not ours
    return found


def stacks(pid):
    """Where the threads of a process are: from gdb, or what the system says of each."""
    try:
        command = ["gdb", "-batch", "-p", str(pid), "-ex", "thread apply all bt 16"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=30)
        lines = [line[:160] for line in done.stdout.splitlines() if line.startswith(("Thread", "#"))]
        return "\n".join(["process %d" % pid] + lines)
    except (OSError, subprocess.TimeoutExpired):
        lines = ["process %d" % pid]
        for what in "wchan", "syscall":
            for path in glob.glob("/proc/%d/task/*/%s" % (pid, what)):
                try:
                    with open(path) as file:
                        lines.append("%s: %s" % (path, file.read().strip()))
                except OSError:
                    pass  # it has ended
        return "\n".join(lines)


def kill_all(token):
    for pid in processes(token):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def gone_within(token, seconds):
    """Waits until no process of the job is left; those that are, otherwise."""
    end = time.monotonic() + seconds
    while True:
        left = processes(token)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def held_files():
    """All files that some process has open or mapped."""
    held = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir("/proc/%s/fd" % pid):
                held.add(os.readlink("/proc/%s/fd/%s" % (pid, fd)))
            with open("/proc/%s/maps" % pid, errors="surrogateescape") as maps:
                held.update(line.split(None, 5)[-1].strip() for line in maps)
        except OSError:
            pass
    return held


def shared_files():
    return {entry.path for entry in os.scandir("/dev/shm") if entry.is_file()}


def libomp_process(path):
    """The process after which libomp has named a file; None for other files."""
    named = re.search(r"KMP_REGISTERED_LIB_(\d+)_", path)
    return named and int(named[1])


def remove_files_of_killed_programs(before):
    """What libomp leaves of a process that is killed, with any plugin. A later
    process with the same number would take it for its own."""
    for path in shared_files() - before:
        pid = libomp_process(path)
        if pid is not None and not os.path.exists("/proc/%d" % pid):
            try:
                os.unlink(path)
            except OSError:
                pass  # another job has


def files_now(before, directory, pids):
    """What the job left in its temporary folder, and what nobody holds of that
    which has come to /dev/shm since, but for libomp's files of other processes
    than `pids`."""
    new = {path for path in shared_files() - before
           if libomp_process(path) in pids | {None}}
    found = sorted(new - held_files()) if new else []
    for path, _, files in os.walk(directory):
        found += [os.path.join(path, name) for name in files]
    return found


def files_left(before, directory, pids):
    """The same, but only what stays: others come and go in /dev/shm."""
    found = []
    for _ in range(10):
        found = files_now(before, directory, pids)
        if not found:
            break
        time.sleep(0.5)
    return found


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mpi", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--ranks", default="hd")
    parser.add_argument("--rc", default="0",
                        help="the status to expect; 'fail' is any but 0, 'any' any")
    parser.add_argument("--timeout", type=float, default=300,
                        help="only a job that hangs takes so long, also on a busy machine")
    parser.add_argument("--no-mpirun", action="store_true",
                        help="start the program alone, the plugin on the path")
    parser.add_argument("--no-files", action="store_true",
                        help="also fail if the job leaves files behind")
    parser.add_argument("--devices-gone", type=float, metavar="SECONDS",
                        help="all devices end so soon after the program")
    parser.add_argument("--device", help="instead of the prefix's")
    parser.add_argument("--slot", help="instead of the prefix's")
    parser.add_argument("--preload", metavar="LIBRARY",
                        help="the processes of the job have this library too")
    parser.add_argument("--mpirun-arg", action="append", default=[])
    parser.add_argument("--stock", action="store_true",
                        help="the program alone, without the plugin")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    return parser.parse_args()


def command_line(args):
    if args.stock or args.no_mpirun:
        return args.program
    launcher = shutil.which("mpirun." + args.mpi) or "mpirun"
    device = args.device or os.path.join(
        args.prefix, "bin", "llvm-offload-mpi-device")
    line = [launcher]
    if args.mpi == "openmpi":
        line.append("--oversubscribe")
    line += args.mpirun_arg
    programs, devices = args.ranks.count("h"), args.ranks.count("d")
    if args.ranks == "h" * programs + "d" * devices and programs and devices:
        ranks = ["--ranks", str(programs)] if programs > 1 else []
        return line + ["-np", str(len(args.ranks)), device] + ranks + args.program
    groups = [(kind, len(list(ranks)))
              for kind, ranks in itertools.groupby(args.ranks)]
    for number, (kind, count) in enumerate(groups):
        line += [":"] if number else []
        line += ["-np", str(count)]
        line += {"c": ["env", "OMPTARGET_MPI_BACKEND=cpu", device],
                 "d": [device],
                 "h": args.program}[kind]
    return line


def wait_for(process, args, token, pids):
    """The status of the job, and seconds that devices outlived the program.
    Adds the job's devices to `pids`."""
    end = time.monotonic() + args.timeout
    if args.devices_gone is None and not args.no_files:
        return process.wait(args.timeout), 0
    program = os.path.realpath(shutil.which(args.program[0]))
    seen, since, late = False, None, 0
    while process.poll() is None:
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(args.program, args.timeout)
        job = processes(token)
        # Not the program's, which was the device executable at first: a libomp that is
        # killed leaves its file, with any plugin.
        for pid, exe in job.items():
            (pids.add if "llvm-offload-mpi-device" in exe else pids.discard)(pid)
        running = job.values()
        if program in running:
            seen, since = True, None
        elif seen and any("llvm-offload-mpi-device" in exe for exe in running):
            since = since or time.monotonic()
            late = time.monotonic() - since
        time.sleep(0.05)
    return process.returncode, late


def main():
    args = arguments()
    token = uuid.uuid4().hex
    environment = dict(os.environ)
    environment[MARK] = token
    set_here = {}
    if not args.stock:
        slot = args.slot
        if slot is None:
            slot = os.path.join(args.prefix, "lib", "omptarget-mpi")
        old = environment.get("LD_LIBRARY_PATH")
        if slot:
            set_here["LD_LIBRARY_PATH"] = slot + (":" + old if old else "")
    if args.preload:
        set_here["LD_PRELOAD"] = args.preload
    environment.update(set_here)
    # Its own: Open MPI fails if two jobs that start make the same folder.
    directory = environment["TMPDIR"] = tempfile.mkdtemp(prefix="lit-")
    # And what Open MPI leaves in memory, when a job of it is aborted, goes with it.
    segments = tempfile.mkdtemp(prefix="lit-", dir="/dev/shm")
    for component in ("sm", "vader"):
        environment["OMPI_MCA_btl_%s_backing_directory" % component] = segments
    line = command_line(args)
    before = shared_files()
    wrong, pids = [], set()

    process = subprocess.Popen(line, env=environment, start_new_session=True)
    try:
        status, late = wait_for(process, args, token, pids)
        ended = "ended with status %d" % status
        if status < 0:
            ended = "ended by signal %d" % -status
            status = 128 - status
        if args.rc == "fail":
            if status == 0:
                wrong.append(ended)
        elif args.rc != "any" and status != int(args.rc):
            wrong.append("%s, not with status %s" % (ended, args.rc))
        if args.devices_gone and late > args.devices_gone:
            wrong.append("devices outlived the program by %.1f s" % late)
        left = gone_within(token, args.devices_gone or 5)
        if left:
            wrong.append("left processes: %s" % left)
        if args.no_files:
            files = files_left(before, directory, pids)
            if files:
                wrong.append("left files: %s" % " ".join(files))
    except subprocess.TimeoutExpired:
        running = processes(token)
        wrong.append("no end within %g s; running: %s\n%s"
                     % (args.timeout, running, "\n".join(map(stacks, running))))
    finally:
        kill_all(token)
        process.kill()
        process.wait()
        remove_files_of_killed_programs(before)
        for folder in directory, segments:
            shutil.rmtree(folder, ignore_errors=True)

    if wrong:
        shown = ["%s=%s" % item for item in set_here.items()] + line
        print("run.py: %s\nrun.py: after %s" % (
            "; ".join(wrong), " ".join(map(shlex.quote, shown))),
            file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
