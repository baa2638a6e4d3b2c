"""A question for rows of tables to the agent of a simulated host, and who fills which table.

What agents know by the description of a host alone is left to the functions that real agents run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from monarch.telemetry.answer import Collected, of_rows
from monarch.telemetry.collect import Collect
from monarch.telemetry.registry import AGENT, Asked, producer_of

from .world import DemoHost, DemoWorld, Proc

Row = tuple[Any, ...]

NOW = "now"
"""The id of the snapshot that a question makes."""

MOST = 100_000
"""Rows of the past that a table has, of all processes together: as rings of a size."""

_BY_DESCRIPTION = frozenset(
    ("actors", "meshes", "snapshots", "root_nodes", "host_nodes", "nodes", "children", "proc_nodes")
)
"""Tables of which agents know something by the description of their host."""


class HostQuestion:
    """One question to one host.

    Args:
        now: When, in seconds since 1970.

    Attributes:
        us: The same, in microseconds.
        since: From when on events are wanted, in seconds.
        is_head: Whether it is the host of the client.
        procs: Processes there, those that have ended among them.
        alive: Those that have not.
        lines: Which lines of logs are wanted; None for all.
    """

    def __init__(self, world: DemoWorld, host: DemoHost, wanted: Collect, now: float) -> None:
        self.world = world
        self.host = host
        self.now = now
        self.us = int(now * 1e6)
        self.since = max((wanted.since_us or 0) / 1e6, world.since)
        self.lines = wanted.lines
        self.is_head = host is world.hosts[0]
        self.procs = [proc for proc in host.procs if proc.mesh.uid not in world.stopped]
        self.alive = [proc for proc in self.procs if world.lives(proc, now)]

    def trainers(self) -> Iterator[Proc]:
        """Yield the procs of trainers that live here."""
        return (proc for proc in self.alive if proc.mesh is self.world.trainers)

    def steps(self, proc: Proc, most: int = MOST, fewest: int = 4) -> range:
        """Return the steps that a proc remembers, that end after `since`, and are over.

        Args:
            proc: The proc.
            most: Of all processes together.
            fewest: Of each process.
        """
        odd = self.world.is_odd(proc)
        done = int(self.world.steps(self.now, odd))
        kept = max(fewest, most // self.world.trainers.size)
        return range(max(done - kept, int(self.world.steps(self.since, odd)), 0), done)


class _Agent:
    """The methods of real agents that functions ask for."""

    def boxes(self) -> tuple[()]:
        """Black boxes of processes that have failed: none."""
        return ()


_Filler = Callable[[HostQuestion], Iterator[Row]]
_fillers: dict[str, _Filler] = {}


def fills(table: str) -> Callable[[_Filler], _Filler]:
    """Mark what fills a table, with the rows of one host."""

    def mark(filler: _Filler) -> _Filler:
        _fillers[table] = filler
        return filler

    return mark


def collected(world: DemoWorld, host: DemoHost, wanted: Collect, now: float) -> Collected:
    """The answer of an agent for its host."""
    asked = HostQuestion(world, host, wanted, now)
    rows = {table: _rows(table, asked) for table in wanted.tables}
    since, until, who = wanted.since_us, wanted.until_us, str(host.agent)
    found = of_rows(rows, wanted.columns, since, wanted.limit, who, until)
    return found._replace(clock=asked.us)


def _rows(table: str, asked: HostQuestion) -> Iterator[Row]:
    if table in _BY_DESCRIPTION:
        agent: Any = _Agent()
        described = asked.world.describe(asked.host, asked.now, ended=True)
        producer = producer_of(table, AGENT)
        assert producer is not None
        yield from producer(Asked(agent, asked.us, None, asked.world.client, {}, described))
    if table in _fillers:
        yield from _fillers[table](asked)
