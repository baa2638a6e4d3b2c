"""The survey of `monarch doctor`: properties of hosts, and those that would make a job fail later.

The actor needs nothing but Monarch there.

What ends the waits: an answer of each host, or its loss; `PATIENCE`; the time limit of each
connection that is tried.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any, NamedTuple

from ..actor import Actor, HostMesh, MeshFailure, current_rank, endpoint, this_proc
from ..spmd.rank import gpus
from .base.contract import why_unreachable

PATIENCE = 30.0
"""Seconds in which a host answers."""

_CONNECT = 3.0  # seconds for a connection to another host
# seconds by which clocks may differ: more, and logs of several hosts are in the wrong order
_MOST_SKEW = 1.0
_FEWEST_FILES = 4096  # open files: a host with many procs, or a program with many hosts, needs them


class HostReport(NamedTuple):
    """A host's report on itself.

    Attributes:
        machine: Its name.
        python: Version of the interpreter.
        monarch: Of this package.
        torch: Of torch; None where it is not installed.
        nixl: Of nixl, for one-sided transfers; None where it is not installed.
        cpus: Usable ones.
        gpus: Of NVIDIA, that a proc may use.
        rdma: Names of the network adapters that can.
        files: How many a proc may have open.
        time: Its clock, in seconds since 1970.
        next_host: Why the next host of the mesh can't be reached from there; empty if it can, or
            there is none.
    """

    machine: str
    python: str
    monarch: str
    torch: str | None
    nixl: str | None
    cpus: int
    gpus: int
    rdma: list[str]
    files: int
    time: float
    next_host: str


class Finding(NamedTuple):
    """A host, and how its clock differs.

    Attributes:
        name: Of the mesh and the host in it, ``trainers[1]``.
        host: What it has.
        skew: Seconds by which its clock is ahead of that here.
    """

    name: str
    host: HostReport
    skew: float


class Checkup(Actor):
    """Looks at the host that it runs on.

    Args:
        addresses: The addresses of all hosts, in order.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    @endpoint
    def look(self) -> HostReport:
        """Say what there is."""
        neighbour = ""
        if len(self._addresses) > 1:
            neighbour = self._addresses[(current_rank().rank + 1) % len(self._addresses)]
        return look(_unreachable(neighbour))


class _Doctor(Actor):
    """Owns the actors that look, in the client."""

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True  # who waits for the answers is told

    @endpoint
    async def look(
        self, hosts: HostMesh, addresses: Sequence[str]
    ) -> list[tuple[HostReport, float]]:
        """Each host, and the time here when it has answered, less half the way."""
        procs = hosts.spawn_procs(name="doctor")
        try:
            ranks: Any = procs.spawn("doctor", Checkup, addresses)
            await ranks.look.call()  # imports what it takes
            began = time.time()
            found = list((await ranks.look.call()).values())
            middle = (began + time.time()) / 2
            return [(host, host.time - middle) for host in found]
        finally:
            await procs.stop("the hosts have answered")


def examine(name: str, hosts: HostMesh, addresses: Sequence[str]) -> list[Finding]:
    """Ask the hosts of a mesh.

    Args:
        name: Of the mesh.
        hosts: The mesh.
        addresses: Where its workers listen.

    Raises:
        SupervisionError: One is lost, or can't be reached.
        TimeoutError: One has not answered within `PATIENCE` seconds.
    """
    doctor: Any = this_proc().spawn("doctor", _Doctor)
    try:
        found = doctor.look.call_one(hosts, addresses).get(timeout=PATIENCE)
    finally:
        doctor.stop("it has looked")
    several = len(found) > 1 or hosts.sizes
    return [
        Finding(f"{name}[{rank}]" if several else name, *each) for rank, each in enumerate(found)
    ]


def look(next_host: str = "") -> HostReport:
    """Survey this machine."""
    return HostReport(
        socket.gethostname(), platform.python_version(), version("pymonarch") or "",
        version("torch"), version("nixl"), len(os.sched_getaffinity(0)), gpus(), _adapters(),
        resource.getrlimit(resource.RLIMIT_NOFILE)[1], time.time(), next_host,
    )  # fmt: skip


def problems(here: HostReport, findings: Sequence[Finding]) -> list[str]:
    """List the findings that would make a program fail, or slow, one line each.

    Args:
        here: The machine of the client.
        findings: The hosts.
    """
    found: list[str] = []
    for name, host, skew in findings:
        who = f"{name} on {host.machine}"
        if host.monarch != here.monarch:
            found.append(
                f"{who} has pymonarch {host.monarch}, and here is {here.monarch}: install the same"
                " on both"
            )
        if _minor(host.python) != _minor(here.python):
            found.append(
                f"{who} has Python {host.python}, and here is {here.python}: functions can't be"
                " sent between them"
            )
        if abs(skew) > _MOST_SKEW:
            found.append(
                f"the clock of {who} is {skew:+.1f} s off: logs will be in the wrong order; start"
                " NTP there"
            )
        if host.files < _FEWEST_FILES:
            found.append(
                f"{who} lets a process have {host.files} files open: `ulimit -Hn {_FEWEST_FILES}`"
                " or more is better"
            )
        if host.next_host:
            found.append(f"from {who}, another host can't be reached: {host.next_host}")
    found += _odd("torch", {each.name: each.host.torch or "none" for each in findings})
    found += _odd("GPUs", {each.name: str(each.host.gpus) for each in findings})
    found += _odd("RDMA adapters", {each.name: str(len(each.host.rdma)) for each in findings})
    return found


def _odd(what: str, values: Mapping[str, str]) -> list[str]:
    """Name the hosts with a value other than the most common one."""
    counts = Counter(values.values()).most_common()
    usual = counts[0][0] if counts else ""
    return [
        f"{name} has {value} as to {what}, and most hosts have {usual}"
        for name, value in values.items()
        if value != usual
    ]


def version(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _minor(text: str) -> list[str]:
    return text.split(".")[:2]


def _adapters() -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir("/sys/class/infiniband"))
    return []


def _unreachable(address: str) -> str:
    """Why no connection can be made; empty if it can, or if there is no network between."""
    if not address.startswith("tcp://"):
        return ""
    why = why_unreachable(address.partition("@")[0], _CONNECT)
    return why and f"{address}: {why}"
