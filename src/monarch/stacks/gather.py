"""Asking the agents of many hosts for the stacks there.

What ends the wait: each host has answered, or is lost, or the time limit; those that have not
answered are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._core.plane import Hub, ProcAddress, current_hub, pickling
from .._rank_selector import RankSelector
from ..actor import Future
from ..programs import Connection, Gathering, agents_of, of_all_hosts
from .host import GetHostStacks
from .model import ProcStacks
from .report import Stacks

_LIMIT = 5.0  # seconds
_NATIVE_LIMIT = 60.0  # seconds: py-spy takes a tenth of one per process, more with large libraries


def of_hosts(
    hosts: Sequence[str], mesh: str | None, ranks: Sequence[int] | None, native: bool
) -> Future[Stacks]:
    """Gather the stacks of this program on some hosts, itself included; see `GetHostStacks`."""
    hub = current_hub()
    return gather(hub, agents_of(hosts), GetHostStacks(hub.root, mesh, ranks, native))


def of_this_program(mesh: str | None = None, ranks: str | None = None) -> Future[Stacks]:
    """Gather the stacks of this process's program on all its hosts.

    Raises:
        ValueError: `ranks` is no expression for ranks.
    """
    if ranks is not None:
        RankSelector(ranks)
    hub, wanted = current_hub(), GetHostStacks(current_hub().root, mesh, ranks)
    return of_all_hosts("the stacks", lambda agents: gather(hub, agents, wanted))


def of_program(
    connection: Connection, mesh: str | None = None, ranks: str | None = None, native: bool = False
) -> Future[Stacks]:
    """Gather the stacks of a running program on all its hosts.

    For a worker, of all processes there.

    Raises:
        ValueError: `ranks` is no expression for ranks.
    """
    if ranks is not None:
        RankSelector(ranks)
    return gather(
        connection.hub, connection.agents, GetHostStacks(connection.owner, mesh, ranks, native)
    )


def gather(
    hub: Hub, agents: Sequence[ProcAddress], wanted: GetHostStacks, limit: float | None = None
) -> Future[Stacks]:
    """The stacks of the processes on several hosts.

    Args:
        hub: The hub that asks.
        agents: Of the hosts.
        wanted: Which.
        limit: Seconds in which a host must answer; None for the default.
    """
    return _Gathering(agents).ask(
        hub, wanted, limit or (_NATIVE_LIMIT if wanted.native else _LIMIT)
    )


class _Gathering(Gathering[Stacks]):
    LATE = "not within {:g}s"

    def __init__(self, agents: Sequence[ProcAddress]) -> None:
        super().__init__(agents, f"the stacks of {len(agents)} hosts")

    def read(self, frames: Sequence[Any]) -> Stacks:
        procs: list[ProcStacks] = []
        for frame in frames:
            procs += pickling.loads(frame.payload, frame.buffers)
        return Stacks(procs, self.silent)
