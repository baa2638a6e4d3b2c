"""Requests to many hosts for the rows of telemetry tables.

SQL queries (`programs`), `profile`, `at_fault`, the admin interface and `monarch metrics` ask here.

The wait ends when each host has answered or is lost, or at the time limit; the result names the
hosts that have not answered.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._core.plane import Hub, ProcAddress, current_hub, pickling
from .._words import host_named
from ..actor import Future, HostMesh
from ..programs import Connection, Gathering, agents_of, of_all_hosts
from .answer import CLOCK, Collected, join, skew, with_keys
from .collect import Collect
from .tables import TABLES

_LIMIT = 10.0  # seconds beside the patience of agents, which say themselves who is late


def read(
    *tables: str,
    since_us: int | None = None,
    until_us: int | None = None,
    limit: int = 100_000,
    columns: Mapping[str, Sequence[str]] | None = None,
    hosts: HostMesh | None = None,
) -> Future[Collected]:
    """Collect rows of tables from all processes of this program.

    Its client or any actor may ask.

    Args:
        *tables: Their names; see `TABLES`.
        since_us: Of tables of events, those since then; in microseconds since 1970.
        until_us: Of tables of events, those that had begun by then.
        limit: Rows of each table; the latest ones.
        columns: Which columns of a table are wanted; all of one that is not named.
        hosts: Where to look; by default on all hosts of the program.

    Raises:
        ValueError: There is no such table, or column.
    """
    hub = current_hub()
    wanted = question(tables, since_us, limit, columns, until_us)._replace(root=hub.root)
    if hosts is not None:
        return gather(hub, agents_of(hosts._hosts), wanted)
    return of_all_hosts(
        f"{', '.join(tables)} of this program", lambda agents: gather(hub, agents, wanted)
    )


def of_program(
    connection: Connection, wanted: Collect, seconds: float = _LIMIT
) -> Future[Collected]:
    """Collect from all hosts of a running program; of a worker's, all that runs there.

    Args:
        connection: See `monarch.programs`.
        wanted: Made by `question`.
        seconds: In which a host must answer, beside the patience that `wanted` has.
    """
    return gather(
        connection.hub, connection.agents, wanted._replace(root=connection.owner), seconds
    )


def question(
    tables: Iterable[str],
    since_us: int | None = None,
    limit: int = 100_000,
    columns: Mapping[str, Sequence[str]] | None = None,
    until_us: int | None = None,
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
            raise ValueError(
                f"table {table!r} has no column {unknown[0]!r}; it has"
                f" {', '.join(TABLES[table].columns)}"
            )
    chosen_columns = {table: tuple(chosen) for table, chosen in (columns or {}).items()}
    return Collect(names, since_us, limit, chosen_columns, until_us=until_us)


def gather(
    hub: Hub, agents: Sequence[ProcAddress], wanted: Collect, seconds: float = _LIMIT
) -> Future[Collected]:
    """Collect rows from several hosts.

    Args:
        hub: The hub that asks.
        agents: Of the hosts.
        wanted: What.
        seconds: See `of_program`.
    """
    return _Gathering(agents, wanted).ask(hub, wanted, seconds + wanted.patience)


class _Gathering(Gathering[Collected]):
    def __init__(self, agents: Sequence[ProcAddress], wanted: Collect) -> None:
        super().__init__(agents, f"{', '.join(wanted.tables)} of {len(agents)} hosts")
        self._wanted = wanted
        self._asked = time.time_ns() // 1000

    def read(self, frames: Sequence[Any]) -> Collected:
        joined = join(self._answers(frames), self.silent, self._wanted.limit)
        columns = {
            t: {c: found[c] for c in self._columns(t)} for t, found in joined.columns.items()
        }
        return joined._replace(columns=columns, silent={**self.silent, **joined.silent})

    def name_of(self, rank: int) -> str:
        return host_named(super().name_of(rank))

    def _answers(self, frames: Sequence[Any]) -> Iterator[Collected]:
        """The answers one by one: all of ten thousand ranks at once would take as much again."""
        tables = self._wanted.tables
        yield Collected(
            {t: {c: [] for c in with_keys(t, self._columns(t))} for t in tables}, {}, {}
        )
        now = time.time_ns() // 1000
        for frame in frames:
            answer: Collected = pickling.loads(frame.payload, frame.buffers)
            if off := skew(answer.clock, self._asked, now):
                self.silent[CLOCK + self.name_of(frame.rank)] = off
            yield answer

    def _columns(self, table: str) -> Sequence[str]:
        """The columns that are wanted."""
        names = TABLES[table].columns
        return [name for name in names if name in self._wanted.columns.get(table, names)]
