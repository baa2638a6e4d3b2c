"""The procs of a program on all of its hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._core.plane import DescribeHost, HostedProc, Hub, ProcAddress, pickling
from ..programs import PATIENCE, Gathering


def procs_of(hub: Hub, agents: Sequence[ProcAddress], tell: Callable[[str], object]) -> list[HostedProc]:
    """What the agents of hosts know.

    Args:
        tell: Called for each host that can't be reached, with its name and why.
    """
    if not agents:
        return []
    hosts = _Hosts(agents, f"the procs of {len(agents)} hosts")
    found = hosts.ask(hub, DescribeHost(), PATIENCE).get()
    for host, why in sorted(hosts.silent.items()):
        tell(f"host {host} can't be reached: {why}")
    return found


class _Hosts(Gathering[list[HostedProc]]):
    def read(self, frames: Sequence[Any]) -> list[HostedProc]:
        return [proc for frame in frames for proc in pickling.loads(frame.payload, frame.buffers).procs]
