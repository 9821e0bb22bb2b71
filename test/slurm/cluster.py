# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A Slurm cluster on this machine: a login node and compute nodes, each a set of Linux namespaces (network, name,
processes, mounts) on a bridge that leads nowhere else. Needs root, and Debian's Slurm and munge."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NETWORK = "10.79.0."
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=login
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n.spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
NodeName={nodes} CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
"""
DAEMONS = {name: "/usr/sbin/" + name for name in ("munged", "slurmctld", "slurmd")}


def missing():
    """Why there can be no cluster here; None if there can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in [*DAEMONS.values(), "srun", "ip", "nsenter"]:
        if not shutil.which(tool):
            return "there is no %s: scripts/setup installs it" % tool
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--mount-proc", "--fork", "true"],
                           stderr=subprocess.PIPE, text=True)
    return ("this system makes no namespaces: " + tried.stderr.strip()) if tried.returncode else None


def end_with_parent():
    """Even if this script is killed, its nodes end, and all that runs and is mounted in them."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Cluster:
    """The nodes `login` and n1, n2, …; use it in a `with`."""

    def __init__(self, nodes):
        self.names = ["login"] + ["n%d" % (i + 1) for i in range(nodes)]
        self.keepers, self.pids = [], {}
        # On all nodes; each has a /tmp of its own around it, which Slurm's PMIx plugin needs.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        folder = self.folder
        folder.chmod(0o755)
        for name in ("munge", "state", "home", *(name + ".spool" for name in self.names)):
            (folder / name).mkdir(mode=0o755)
        (folder / "munge" / "key").write_bytes(os.urandom(128))
        (folder / "munge" / "key").chmod(0o400)
        nodes = "n[1-%d]" % (len(self.names) - 1)
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, nodes=nodes))
        hosts = ["%s%d %s\n" % (NETWORK, i + 1, name) for i, name in enumerate(self.names)]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(hosts))
        for name in self.names:
            self.start_node(name)
        self.connect()
        files = {"key-file": "key", "socket": "socket", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        munge = ["--%s=%s/munge/%s" % (option, folder, file) for option, file in files.items()]
        self.daemon("login", "munged", "--foreground", *munge)
        self.wait_for(lambda: (folder / "munge" / "socket").exists(), "munged")
        self.daemon("login", "slurmctld", "-D", "-i")
        for name in self.names[1:]:
            self.daemon(name, "slurmd", "-D", "-N", name)
        idle = lambda: self.run("sinfo -h -t idle -o %D")[1].strip() == str(len(self.names) - 1)
        self.wait_for(idle, "slurmctld")

    def start_node(self, name):
        inside = "/mnt/slurm-test"
        script = ["hostname " + name, "mount --bind %s/hosts /etc/hosts" % self.folder, "mount -t tmpfs none /dev/shm",
                  "mount -t tmpfs none /mnt -o mode=755", "mkdir " + inside,
                  "mount -t tmpfs none %s -o mode=1777" % inside]
        for shared in {str(self.folder), str(ROOT)}:
            if shared.startswith("/tmp/"):
                place = inside + shared[4:]
                script += ["mkdir -p " + place, "mount --bind %s %s" % (shared, place)]
        # The first process of a pid namespace has to reap orphans.
        script += ["mount --rbind %s /tmp" % inside, "ip link set lo up", "echo ready",
                   "while :; do sleep 1000 & wait $! || :; done"]
        spaces = ["--net", "--uts", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
        keeper = subprocess.Popen(["unshare", *spaces, "bash", "-ec", "\n".join(script)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent)
        self.keepers.append(keeper)
        if keeper.stdout.readline() != "ready\n":
            raise OSError("can't make the node " + name)
        with open("/proc/%d/task/%d/children" % (keeper.pid, keeper.pid)) as children:
            self.pids[name] = int(children.read())

    def connect(self):
        def ip(name, *words):
            subprocess.run(["nsenter", "--target", str(self.pids[name]), "--net", "ip", *words], check=True)

        ip("login", "link", "add", "eth0", "type", "bridge")
        for i, name in enumerate(self.names):
            if i > 0:
                ip("login", "link", "add", "port%d" % i, "type", "veth", "peer", "name", "eth0",
                   "netns", str(self.pids[name]))
                ip("login", "link", "set", "port%d" % i, "master", "eth0", "up")
            ip(name, "addr", "add", "%s%d/24" % (NETWORK, i + 1), "dev", "eth0")
            ip(name, "link", "set", "eth0", "up")

    def on(self, name, *command):
        """A command's words on a node, with the environment of its users."""
        spaces = ["--net", "--uts", "--mount", "--pid", "--wd=%s/home" % self.folder]
        environment = ["HOME=%s/home" % self.folder, "SLURM_CONF=%s/slurm.conf" % self.folder, "LANG=C.UTF-8",
                       "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]
        return ["nsenter", "--target", str(self.pids[name]), *spaces, "--", "env", "-i", *environment, *command]

    def daemon(self, name, program, *words):
        with open(self.folder / ("%s.%s.out" % (name, program)), "wb") as out:
            subprocess.Popen(self.on(name, DAEMONS[program], *words), stdin=subprocess.DEVNULL, stdout=out,
                             stderr=subprocess.STDOUT, start_new_session=True)

    def wait_for(self, what, whom):
        end = time.monotonic() + 30
        while not what():
            if time.monotonic() > end:
                said = "".join(path.read_text(errors="replace")[-1000:] for path in self.folder.glob("*.out"))
                raise OSError("%s did not start in 30 s: %s" % (whom, said))
            time.sleep(0.1)

    def run(self, script, limit=30, environment=()):
        """Runs a shell's script on the login node; returns its status, None after the limit, and its output."""
        process = subprocess.Popen(self.on("login", *environment, "bash", "-c", script), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output

    def stop(self):
        # All processes and mounts of a node end with its first process.
        for keeper in self.keepers:
            keeper.kill()
            keeper.wait()
        # The last writes of a daemon that ends may come during the first try.
        for _ in range(10):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.2)
