"""A real Slurm of three nodes on this machine, as the daemons of one user with everything in a
temporary folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from helpers.leaks import OF_SESSION, describe
from helpers.waiting import wait_until
from helpers.workers import free_ports

NODES = ("n0", "n1", "n2")
CPUS, GPUS = 4, 2
BOUND = 60.0  # seconds in which what takes moments has to end
GRACE_TIME = 100  # seconds that a job of the partition `low` gets when one of `high` preempts it
KILL_WAIT = 2  # seconds between SIGTERM and SIGKILL, as Slurm ends a job

_CONFIGURATION = """
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/run/controller.pid
SlurmdPidFile={folder}/run/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
SlurmdTimeout=10
KillWait={kill_wait}
GresTypes=gpu
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=low Nodes=ALL PriorityTier=1 GraceTime={grace_time}
PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=OFF
"""


@dataclass
class Slurm:
    """Attributes:
    folder: Where everything is.
    daemons: By name: the controller, and that of each node.
    """

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=BOUND
        ).stdout

    def start_node(self, node: str) -> None:
        self._start(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """As if the power had failed: the daemon ends, and all processes of jobs there.

        Slurm is told, and need not find out.
        """
        daemon = self.daemons.pop(node)
        daemon.kill()
        daemon.wait()
        for pid in self.processes():
            if f"SLURMD_NODENAME={node}" in environment_of(pid):
                _kill(pid)
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=killed")

    def revive_node(self, node: str) -> None:
        self.start_node(node)
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")

    def wait_idle(self) -> None:
        """Until no node has anything to do."""
        wait_until(
            lambda: (
                self.ask("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split()
                == ["idle"] * len(NODES)
            ),
            what="all nodes to be idle",
            interval=0.05,
        )

    def processes(self) -> list[int]:
        """All that runs in jobs, by the environment that it has from Slurm."""
        needle = f"SLURM_CONF={self.folder}/slurm.conf"
        own = {os.getpid(), *(daemon.pid for daemon in self.daemons.values())}
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return [
            pid
            for pid in pids
            if pid not in own
            and needle in environment_of(pid)
            and "slurmscriptd" not in command_of(pid)  # the controller's
        ]

    def start(self) -> None:
        for name in ("state", "run", *(f"spool.{node}" for node in NODES)):
            (self.folder / name).mkdir()
        port, *ports = free_ports(1 + len(NODES))
        host = os.uname().nodename
        node = (
            "NodeName={} NodeHostname={} NodeAddr=127.0.0.1 Port={} CPUs={} RealMemory=1000"
            " Gres=gpu:{}"
        )
        nodes = "\n".join(
            node.format(name, host, own, CPUS, GPUS) for name, own in zip(NODES, ports, strict=True)
        )
        text = _CONFIGURATION.format(
            host=host,
            port=port,
            folder=self.folder,
            kill_wait=KILL_WAIT,
            grace_time=GRACE_TIME,
            nodes=nodes,
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(
            f"NodeName=n[0-2] Name=gpu Count={GPUS} File=/dev/tty[0-{GPUS - 1}]\n"
        )
        self._start("controller", "slurmctld", "-D", "-c")
        for name in NODES:
            self.start_node(name)

    def end(self) -> None:
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        left = []
        for name, daemon in self.daemons.items():
            try:
                daemon.wait(BOUND)
            except subprocess.TimeoutExpired:
                left.append(f"{name}: {describe(daemon.pid)}")
                daemon.kill()
        assert not left, f"these did not end within {BOUND:.0f} s of SIGTERM: {left}"

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command, "-f", str(self.folder / "slurm.conf")],
                env={**os.environ, **self.environment, **dict([OF_SESSION.split("=")])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@contextmanager
def running_slurm() -> Iterator[Slurm]:
    """Three idle nodes; at the end nothing is left of them, and of what ran there."""
    with tempfile.TemporaryDirectory(prefix="ms") as folder:
        slurm = Slurm(Path(folder))
        try:
            slurm.start()
            wait_until(lambda: _answers(slurm), what="Slurm to answer", interval=0.05)
            slurm.wait_idle()
            yield slurm
            wait_until(
                lambda: not slurm.processes(),
                what=lambda: f"the end of {[*map(describe, slurm.processes())]}",
            )
        finally:
            slurm.end()
            for pid in slurm.processes():
                _kill(pid)


def why_not() -> str:
    """Why there can be no Slurm here; empty if there can."""
    missing = [
        name for name in ("slurmctld", "slurmd", "sbatch", "setpriv") if shutil.which(name) is None
    ]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurmctld slurmd slurm-client"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root"


def _answers(slurm: Slurm) -> bool:
    environment = {**os.environ, **slurm.environment}
    return (
        subprocess.run(["sinfo"], env=environment, capture_output=True, check=False).returncode == 0
    )


def environment_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
