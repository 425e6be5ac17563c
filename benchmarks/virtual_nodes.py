"""Virtual nodes of a cluster on one Linux machine: network namespaces around a bridge, under a real Slurm.

    node1 (10.77.0.11) ... node4 (10.77.0.14), each with its own host name and loopback; head (10.77.0.1) is the bridge

Processes of a node share its loopback, which is as fast as the machine. Between nodes every message takes two veth
pairs, shaped by `tc` to a rate in both directions. Slurm (slurmctld, and a slurmd in each node) and munge run as
installed, with files in a temporary folder.

Invariant: all of it lives in one PID, network and mount namespace. Its first process dies with the process that made
it, by whatever signal, and takes every process, namespace, interface and mount along.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import NamedTuple

PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setpriv", "munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
PATIENCE = 90.0  # seconds until all nodes are up, or down
PATH = "/usr/sbin:/sbin:"
NODES, RATE = 4, "1gbit"  # at most nine nodes; the rate of each, as `tc` reads it
CPUS = 32  # of a node, as Slurm counts them; nothing is bound
BURST = "128kb"  # two packets of the largest size that the kernel hands on in one piece
Ended = subprocess.CompletedProcess[str]
INSIDE = ("--net", "--uts", "--mount", "--pid")

SLURM = """\
ClusterName=virtual
SlurmctldHost=head(10.77.0.1)
SlurmUser=root
AuthInfo=socket={folder}/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""
HEAD = """\
set -e
mount -t tmpfs tmpfs /run
mount --bind {folder}/hosts /etc/hosts
mount -t sysfs sysfs /sys
hostname head
ip link set lo up
ip link add cluster type bridge
ip addr add 10.77.0.1/24 dev cluster
ip link set cluster up
munged --force --foreground --num-threads=2 --socket={folder}/munge --key-file={folder}/key \\
  --pid-file={folder}/munged.pid --log-file={folder}/munged.log --seed-file={folder}/seed &
"""
NODE = """\
ip netns add node{i}
ip link add to{i} type veth peer name eth0 netns node{i}
tc qdisc add dev to{i} root tbf rate {rate} burst {burst} latency 100ms
tc -n node{i} qdisc add dev eth0 root tbf rate {rate} burst {burst} latency 100ms
ip link set to{i} master cluster up
ip -n node{i} addr add 10.77.0.1{i}/24 dev eth0
ip -n node{i} link set lo up
ip -n node{i} link set eth0 up
ip netns exec node{i} unshare --uts sh -c 'hostname node{i}; mount -t tmpfs tmpfs /sys/fs/cgroup; exec slurmd -D' &
"""


def missing() -> str:
    """Why there can be no virtual nodes here; empty if there can be."""
    if absent := [program for program in PROGRAMS if shutil.which(program, path=PATH + os.environ["PATH"]) is None]:
        return f"not installed: {', '.join(absent)} (Debian: slurm-wlm, munge, iproute2, util-linux)"
    # `ip` would read short names as abbreviations of its own words, as `a` of `address`
    trial = "ip link add i0 type veth peer name i1 && tc qdisc add dev i0 root tbf rate 1gbit burst 128kb latency 1ms"
    made = subprocess.run(["unshare", *INSIDE, "--fork", "sh", "-c", trial], capture_output=True, text=True)
    return f"no network namespaces can be made and shaped: {made.stderr.strip()}" if made.returncode else ""


class Nodes(NamedTuple):
    """Nodes that are up. `inside` starts a command on the head."""

    folder: Path
    environment: dict[str, str]
    inside: list[str]

    def run(self, command: str, *, folder: Path | None = None, seconds: float = 60.0, check: bool = True) -> Ended:
        """Runs a shell command on the head, and ends it with all it started after so many seconds."""
        there = [*self.inside, "sh", "-c", f"cd {shlex.quote(str(folder or self.folder))}; {command}"]
        process = subprocess.Popen(
            there, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True, env=self.environment, start_new_session=True
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        if check and process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}:\n{out}{err}")
        return Ended(command, process.returncode, out, err)


@contextlib.contextmanager
def started() -> Iterator[Nodes]:
    """The nodes are up at its start, and nothing is left at its end. JAX takes their CPUs."""
    with tempfile.TemporaryDirectory(prefix="nodes-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _configure(folder)
        each = (NODE.format(i=i, rate=RATE, burst=BURST) for i in range(1, NODES + 1))
        script = "".join([HEAD.format(folder=folder), *each, "exec slurmctld -D\n"])
        environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH + os.environ["PATH"]}
        environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
        own = ["setpriv", "--pdeathsig", "KILL", "unshare", *INSIDE, "--fork", "--kill-child", "--mount-proc"]
        with open(folder / "log", "w") as log:
            first = subprocess.Popen([*own, "sh", "-c", script], stdin=DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            yield _ready(first, folder, environment)
        finally:
            for child in _children(first):
                os.kill(child, signal.SIGKILL)  # process 1 of the namespace, and so all of it
            with contextlib.suppress(subprocess.TimeoutExpired):
                first.wait(PATIENCE)
            first.kill()


def _configure(folder: Path) -> None:
    addresses = {f"node{i}": f"10.77.0.1{i}" for i in range(1, NODES + 1)}
    nodes = "\n".join(f"NodeName={name} NodeAddr={address} CPUs={CPUS}" for name, address in addresses.items())
    hosts = {"localhost": "127.0.0.1", "head": "10.77.0.1", **addresses}
    for name in ("state", *addresses):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(SLURM.format(folder=folder, nodes=nodes))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # none is mounted; none is used
    (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)


def _ready(first: "subprocess.Popen[bytes]", folder: Path, environment: dict[str, str]) -> Nodes:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and first.poll() is None:
        time.sleep(0.5)
        if children := _children(first):
            nodes = Nodes(folder, environment, ["nsenter", "--target", str(children[0]), *INSIDE])
            if nodes.run("sinfo -h -N -o %T", check=False).stdout.split() == ["idle"] * NODES:
                return nodes
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*log")))
    raise RuntimeError(f"the nodes did not start within {PATIENCE:.0f} s:\n{logs}")


def _children(first: "subprocess.Popen[bytes]") -> list[int]:
    own = Path(f"/proc/{first.pid}/task/{first.pid}/children")
    return list(map(int, own.read_text().split())) if own.exists() else []
