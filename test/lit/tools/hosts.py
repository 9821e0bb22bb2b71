#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command on one of several hosts that are connected by a network.

    hosts.py [--hide HOST=FOLDER]... [--delay MS] alpha,beta,gamma COMMAND [ARGUMENT...]

A host is a set of Linux namespaces: a network, a name, processes and mounts of its
own. The command runs on the first; MPI launchers find there, in place of ssh, a script
that enters another one, and reach it by TCP alone. --hide empties a folder on a host. With
--delay every packet takes that many milliseconds more.
Ends with the command's status, and says by which signal it was ended. Needs root.
"""

import argparse
import collections
import contextlib
import ctypes
import fcntl
import os
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time

NETWORK = "10.78.0."
MTU = 9000
# Of linux/if_tun.h.
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def start(name, folder, hide, first):
    """Starts a host; returns the process to end it by, and the one to enter it by.
    The first host sees the processes of the others: it must be able to enter them."""
    # Open MPI names its shared memory by host and process: other tests have the same.
    script = ["hostname " + name, "mount --bind %s/hosts /etc/hosts" % folder,
              "mount -t tmpfs none /dev/shm"]
    for path in hide:
        script.append("mount -t tmpfs none " + shlex.quote(path))
    script += ["ip link set lo up", "echo ready", "exec sleep infinity"]
    spaces = ["--net", "--uts", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    outer = ["nsenter", "--target", str(first), "--pid"] if first else []
    process = subprocess.Popen([*outer, "unshare", *spaces, "sh", "-ec", "\n".join(script)],
                               stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        sys.exit("hosts.py: can't make the host " + name)
    pid = process.pid
    while not list(open("/proc/%d/comm" % pid))[0].startswith("sleep"):
        with open("/proc/%d/task/%d/children" % (pid, pid)) as children:
            pid = int((children.read().split() or [pid])[0])
    return process, pid


def seen_by_first(pid):
    """The number of a process of another host on the first one."""
    with open("/proc/%d/status" % pid) as status:
        numbers = [line.split() for line in status if line.startswith("NSpid:")][0]
    return int(numbers[-2])


def inside(pid, *command):
    spaces = ["--net", "--uts", "--mount", "--pid"]
    return ["nsenter", "--target", str(pid), *spaces, "--wd=" + os.getcwd(), "--", *command]


def ip(pid, *words):
    subprocess.run(["nsenter", "--target", str(pid), "--net", "ip", *words], check=True)


def connect_slowly(pids, delay):
    """Connects all hosts by a process that passes on each packet after a delay, seconds;
    returns the process's number."""
    ready, is_ready = os.pipe()
    relay = os.fork()
    if relay == 0:
        try:
            os.close(ready)
            ends = [open_tap(pid) for pid in pids]
            os.write(is_ready, b"+")
            pass_on(ends, delay)
        finally:
            os._exit(1)
    os.close(is_ready)
    if os.read(ready, 1) != b"+":
        sys.exit("hosts.py: can't connect the hosts")
    for i, pid in enumerate(pids):
        ip(pid, "addr", "add", "%s%d/24" % (NETWORK, i + 1), "dev", "eth0")
        ip(pid, "link", "set", "eth0", "up", "mtu", str(MTU))
    return relay


def open_tap(pid):
    """Enters a host's network and makes eth0 there; returns the file of its packets."""
    with open("/proc/%d/ns/net" % pid) as network:
        if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), 0) != 0:
            sys.exit("hosts.py: setns: " + os.strerror(ctypes.get_errno()))
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
    return tap


def pass_on(ends, delay):
    """Passes each packet on to all other ends."""
    under_way = collections.deque()
    while True:
        wait = max(0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait)[0]:
            under_way.append((time.monotonic() + delay, end, os.read(end, MTU + 64)))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, packet = under_way.popleft()
            for other in ends:
                if other != end:
                    with contextlib.suppress(OSError):  # it is not up yet
                        os.write(other, packet)


def connect(pids):
    """Puts all hosts on a bridge of the first one's."""
    ip(pids[0], "link", "add", "eth0", "type", "bridge")
    for i, pid in enumerate(pids):
        if i > 0:
            port = "port%d" % i
            ip(pids[0], "link", "add", port, "type", "veth", "peer", "name", "eth0",
               "netns", str(pid))
            ip(pids[0], "link", "set", port, "master", "eth0", "up")
        ip(pid, "addr", "add", "%s%d/24" % (NETWORK, i + 1), "dev", "eth0")
        ip(pid, "link", "set", "eth0", "up")


def agent(folder, names, pids):
    """The script that launchers call in place of ssh: [OPTION...] HOST COMMAND..."""
    path = os.path.join(folder, "agent")
    cases = ["%s|%s%d) pid=%d;;" % (name, NETWORK, i + 1, seen_by_first(pid))
             for i, (name, pid) in enumerate(zip(names, pids)) if i > 0]
    names = ("PATH", "HOME", "TMPDIR", "OMPTARGET_TEST_JOB", "OMPI_ALLOW_RUN_AS_ROOT",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
             "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")
    kept = ["%s=%s" % (name, os.environ[name]) for name in names if name in os.environ]
    lines = ["#!/bin/sh", "while case $1 in -*) true;; *) false;; esac; do shift; done",
             "case $1 in", *cases, "*) echo no host $1 >&2; exit 255;;", "esac", "shift",
             # As little of the environment comes along as with ssh.
             "exec env -i %s " % " ".join(map(shlex.quote, kept)) +
             " ".join(inside("$pid", "sh", "-c", '"$*"'))]
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    os.chmod(path, 0o755)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hide", action="append", default=[], metavar="HOST=FOLDER")
    parser.add_argument("--delay", type=float, default=0, metavar="MS")
    parser.add_argument("hosts", type=lambda text: text.split(","))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    hidden = [item.split("=", 1) for item in args.hide]

    # Ended by a signal, the hosts still go: --kill-child and what follows below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    keepers, relay = [], None
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        try:
            with open(os.path.join(folder, "hosts"), "w") as file:
                file.write("127.0.0.1 localhost\n")
                for i, name in enumerate(args.hosts):
                    file.write("%s%d %s\n" % (NETWORK, i + 1, name))
            pids = []
            for name in args.hosts:
                hide = [path for host, path in hidden if host == name]
                keeper, pid = start(name, folder, hide, pids[0] if pids else None)
                keepers.append(keeper)
                pids.append(pid)
            if args.delay:
                relay = connect_slowly(pids, args.delay / 1000)
            else:
                connect(pids)
            ssh = agent(folder, args.hosts, pids)
            environment = dict(
                os.environ,
                OMPI_MCA_plm_rsh_agent=ssh,
                PRTE_MCA_plm_ssh_agent=ssh,
                OMPI_MCA_btl="self,vader,tcp",
                OMPI_MCA_btl_tcp_if_include=NETWORK + "0/24",
                OMPI_MCA_oob_tcp_if_include=NETWORK + "0/24",
                PRTE_MCA_prte_if_include=NETWORK + "0/24",
                HYDRA_LAUNCHER="ssh",
                HYDRA_LAUNCHER_EXEC=ssh,
                HYDRA_IFACE="eth0",
                # UCX takes hosts of one kernel for one host, whose memory they share.
                UCX_TLS="tcp,self",
                UCX_NET_DEVICES="eth0",
            )
            status = subprocess.run(inside(pids[0], *args.command), env=environment).returncode
            if status < 0:
                print("hosts.py: ended by signal %d" % -status, file=sys.stderr)
                status = 128 - status
        finally:
            if relay:
                os.kill(relay, signal.SIGKILL)
            for keeper in keepers:
                keeper.kill()
                keeper.wait()
    sys.exit(status)


if __name__ == "__main__":
    main()
