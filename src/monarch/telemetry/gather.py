"""Asking many hosts for the rows of tables.

What ends the wait: each host has answered, or is lost, or the time limit; those that have not answered are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._core.plane import (
    DEAD,
    ERROR,
    DescribeHost,
    Failure,
    Hub,
    ProcAddress,
    Promise,
    client,
    current_hub,
    load_error,
    pickling,
    send_record,
    subscribe,
)
from ..actor import Future, HostMesh
from ..programs import Connection, ask
from .answer import Collected, join, with_time
from .collect import Collect
from .tables import TABLES

_LIMIT = 10.0  # seconds beside the patience of agents, which say themselves who is late


def read(
    *tables: str,
    since_us: int | None = None,
    limit: int = 100_000,
    columns: Mapping[str, Sequence[str]] | None = None,
    hosts: HostMesh | None = None,
) -> Future[Collected]:
    """Collect rows of tables from all processes of this program, which is asked by its client or by any actor.

    Args:
        *tables: Their names; see `TABLES`.
        since_us: Of tables of events, those since then; in microseconds since 1970.
        limit: Rows of each table; the latest ones.
        columns: Which columns of a table are wanted; all of one that is not named.
        hosts: Where to look; by default on all hosts of the program.

    Raises:
        ValueError: There is no such table, or column.
    """
    hub = current_hub()
    if hub.address == hub.root:
        client().ensure_agent()  # which a program that has spawned nothing may not have yet
    wanted = question(tables, since_us, limit, columns)._replace(root=hub.root)
    if hosts is not None:
        return gather(hub, [ProcAddress(host, "").agent for host in hosts._hosts], wanted)
    agent = hub.root.agent
    described = ask(hub, agent, DescribeHost())
    found: Promise[Collected] = Promise(f"{', '.join(tables)} of this program")

    def asked(description: Future[Any]) -> None:
        error = description.exception()
        if error is not None:
            found.reject(error)
            return
        others = [agent._replace(host=host) for host in description.get().hosts]
        gather(hub, [agent, *others], wanted).add_done_callback(lambda done: found.resolve(done, Future.get))

    described.add_done_callback(asked)
    return found.future


def of_program(connection: Connection, wanted: Collect) -> Future[Collected]:
    """From a running program, of all its hosts; all that runs on that of a worker.

    Args:
        connection: See `monarch.programs`.
        wanted: Made by `question`.
    """
    root = None if connection.program.is_worker else connection.root
    return gather(connection.hub, connection.agents, wanted._replace(root=root))


def question(
    tables: Iterable[str],
    since_us: int | None = None,
    limit: int = 100_000,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> Collect:
    """A record that asks for tables that there are; for the arguments see `read`.

    Raises:
        ValueError: There is no such table, or column.
    """
    names = tuple(dict.fromkeys(tables))
    for name in names:
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}; there are {', '.join(sorted(TABLES))}")
    for table, chosen in (columns or {}).items():
        unknown = [column for column in chosen if column not in TABLES[table].columns]
        if unknown:
            raise ValueError(f"table {table!r} has no column {unknown[0]!r}; it has {', '.join(TABLES[table].columns)}")
    return Collect(names, since_us, limit, {table: tuple(chosen) for table, chosen in (columns or {}).items()})


def gather(hub: Hub, agents: Sequence[ProcAddress], wanted: Collect) -> Future[Collected]:
    """From several hosts.

    Args:
        agents: Of the hosts.
        wanted: What.
    """
    gathering = _Gathering(agents, wanted)
    send_record(hub, agents, wanted, gathering)
    seconds = _LIMIT + wanted.patience
    timer = hub.poller.call_later(seconds, lambda: gathering.time_is_up(seconds))
    subscribe(gathering.future, timer.cancel)
    return gathering.future


class _Gathering(Promise[Collected]):
    """The answers of agents, on the I/O thread."""

    def __init__(self, agents: Sequence[ProcAddress], wanted: Collect) -> None:
        self._agents = agents
        self._wanted = wanted
        self._frames: list[Any] = []
        self._silent: dict[str, str] = {}
        self._waiting = set(range(len(agents)))
        super().__init__(f"{', '.join(wanted.tables)} of {len(agents)} hosts")

    def reply(self, frame: Any) -> bool:
        if frame.rank in self._waiting:
            host = self._agents[frame.rank].host
            if frame.flags == ERROR:
                self._silent[host] = str(load_error(frame.payload).exception)
            elif frame.flags == DEAD:
                self._silent[host] = pickling.loads(frame.payload).reason
            else:
                self._frames.append(frame)
        return self._came(frame.rank)

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        for rank in self._waiting.copy():  # one that is lost after it has answered is as it has said
            if self._agents[rank] == address:
                self._silent[address.host] = failure.reason
                self._came(rank)
        return not self._waiting

    def time_is_up(self, seconds: float) -> None:
        """The time is up."""
        for rank in self._waiting.copy():
            self._silent[self._agents[rank].host] = f"did not answer within {seconds:g} s"
            self._came(rank)

    def _came(self, rank: int) -> bool:
        if rank in self._waiting:
            self._waiting.remove(rank)
            if not self._waiting:
                self.resolve(sorted(self._frames, key=lambda frame: int(frame.rank)), self._join)
        return not self._waiting

    def _join(self, frames: Sequence[Any]) -> Collected:
        """Runs in the thread that reads the future."""
        answers = [pickling.loads(frame.payload, frame.buffers) for frame in frames]
        empty = Collected({t: {c: [] for c in with_time(t, self._columns(t))} for t in self._wanted.tables}, {}, {})
        joined = join([empty, *answers], self._silent, self._wanted.limit)
        columns = {t: {c: found[c] for c in self._columns(t)} for t, found in joined.columns.items()}
        return joined._replace(columns=columns)

    def _columns(self, table: str) -> Sequence[str]:
        """Those that are wanted."""
        names = TABLES[table].columns
        return [name for name in names if name in self._wanted.columns.get(table, names)]
