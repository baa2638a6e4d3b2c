"""Asking the agents of many hosts for the stacks there.

What ends the wait: each host has answered, or is lost, or the time limit; those that have not answered are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._core.plane import (
    Failure,
    Hub,
    ProcAddress,
    Promise,
    RankSelector,
    current_hub,
    pickling,
    refusal,
    send_record,
    subscribe,
)
from ..actor import Future
from ..programs import Connection
from .host import GetHostStacks
from .model import ProcStacks
from .report import Stacks

_LIMIT = 5.0  # seconds
_NATIVE_LIMIT = 60.0  # seconds: py-spy takes a tenth of one per process, more with large libraries


def of_hosts(hosts: Sequence[str], mesh: str | None, ranks: Sequence[int] | None, native: bool) -> Future[Stacks]:
    """What this program has on some hosts, itself included; see `GetHostStacks`."""
    hub = current_hub()
    agents = [ProcAddress(host, "").agent for host in hosts]
    return gather(hub, agents, GetHostStacks(hub.root, mesh, ranks, native))


def of_program(
    connection: Connection, mesh: str | None = None, ranks: str | None = None, native: bool = False
) -> Future[Stacks]:
    """What a running program has on all its hosts; all that runs on that of a worker.

    Raises:
        ValueError: `ranks` is no expression for ranks.
    """
    if ranks is not None:
        RankSelector(ranks)
    root = None if connection.program.is_worker else connection.root
    return gather(connection.hub, connection.agents, GetHostStacks(root, mesh, ranks, native))


def gather(
    hub: Hub, agents: Sequence[ProcAddress], wanted: GetHostStacks, limit: float | None = None
) -> Future[Stacks]:
    """The stacks of the processes on several hosts.

    Args:
        agents: Of the hosts.
        wanted: Which.
        limit: Seconds in which a host must answer; None for what is usual.
    """
    gathering = _Gathering(agents)
    send_record(hub, agents, wanted, gathering)
    seconds = limit or (_NATIVE_LIMIT if wanted.native else _LIMIT)
    timer = hub.poller.call_later(seconds, lambda: gathering.time_is_up(seconds))
    subscribe(gathering.future, timer.cancel)
    return gathering.future


class _Gathering(Promise[Stacks]):
    """The answers, on the I/O thread."""

    def __init__(self, agents: Sequence[ProcAddress]) -> None:
        self._agents = agents
        self._answers: dict[int, list[ProcStacks]] = {}
        self._silent: dict[str, str] = {}
        self._waiting = set(range(len(agents)))
        super().__init__(f"the stacks of {len(agents)} hosts")

    def reply(self, frame: Any) -> bool:
        host = self._agents[frame.rank].host
        why = refusal(frame)
        if why is None:
            self._answers[frame.rank] = pickling.loads(frame.payload, frame.buffers)
        else:
            self._silent[host] = why
        return self._came(frame.rank)

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        for rank in self._waiting.copy():  # one that is lost after it has answered is as it has said
            if self._agents[rank] == address:
                self._silent[address.host] = failure.reason
                self._came(rank)
        return not self._waiting

    def time_is_up(self, seconds: float) -> None:
        """The time is up."""
        for rank in self._waiting:
            self._silent[self._agents[rank].host] = f"not within {seconds:g}s"
        self._waiting.clear()
        self._resolve()

    def _came(self, rank: int) -> bool:
        if rank in self._waiting:
            self._waiting.remove(rank)
            if not self._waiting:
                self._resolve()
        return not self._waiting

    def _resolve(self) -> None:
        procs = [proc for rank in sorted(self._answers) for proc in self._answers[rank]]
        self.resolve(Stacks(procs, self._silent))
