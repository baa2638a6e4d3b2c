"""The question for rows of tables.

Each process answers for itself, and a host agent for its host.

What ends the wait of an agent: each process of the host has answered, or ended; or none has
answered for `patience` seconds; or `_LIMIT` seconds more are over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._answering import HostAnswers, answer_on_thread
from .._core import plane
from .._namedtuple import NamedTuple
from .answer import Collected, join, of_rows
from .registry import (
    AGENT,
    PROC,
    Asked,
    Producer,
    living_procs,
    producer_of,
    takes_a_thread,
)

if TYPE_CHECKING:
    from ..logs.filter import LineFilter

_LIMIT = 3.0  # seconds beside the patience, where answers come one by one


class Collect(NamedTuple):
    """Collect the rows of these tables.

    A client, of the program or beside it ──▶ host agents; each of them ──▶ its procs and the
    client. Answer: `Collected`. A process that has ended has no rows of its own; its agent and its
    owner have some of it.

    Attributes:
        tables: Their names.
        since_us: Of tables of events, those since then; in microseconds since 1970.
        limit: Rows of each table; the latest ones.
        columns: Which columns of a table are wanted; all of one that is not named.
        root: The client that owns the processes that are asked; it is asked, too; None for
            everybody's.
        patience: Seconds for which an agent waits while no process answers.
        lines: Of the table `logs` those that match; None for all. Only agents are told.
        until_us: Of tables of events, those that had begun by then.
    """

    tables: tuple[str, ...]
    since_us: int | None = None
    limit: int = 100_000
    columns: Mapping[str, Sequence[str]] = {}
    root: plane.ProcAddress | None = None
    patience: float = 1.0
    lines: LineFilter | None = None
    until_us: int | None = None


@plane.handles(Collect)
def _collect(service: plane.ControlService, request: plane.ControlRequest, record: Collect) -> None:
    hub = service.hub
    if hub.address != hub.address.agent:
        for table in record.tables:
            producer_of(table, PROC)  # imported first
        if any(map(takes_a_thread, record.tables)):
            answer_on_thread(request, "monarch-telemetry", _own, service, record, PROC)
        else:
            request.answer(_own(service, record, PROC))
        return

    host = _Host(service, record, service.describe_host(ended=True))
    answer_on_thread(request, "monarch-telemetry", host.collect)


def _own(
    service: plane.ControlService,
    record: Collect,
    where: str,
    description: plane.HostDescription | None = None,
) -> Collected:
    asked = Asked(
        service, time.time_ns() // 1000, record.since_us, record.root, {}, description, record.lines
    )
    producers = {table: producer_of(table, where) for table in record.tables}
    rows = {
        table: _rows(producer, asked) if producer is not None else ()
        for table, producer in producers.items()
    }
    who = str(service.hub.address)
    return of_rows(rows, record.columns, record.since_us, record.limit, who, record.until_us)


def _rows(producer: Producer, asked: Asked) -> Iterator[tuple[Any, ...]]:
    yield from producer(asked)  # in the place where what it raises costs its table alone


class _Host(HostAnswers):
    """One request to an agent.

    `reply` and `peer_failed` take the answers of processes, on the I/O thread; `run` does the rest,
    as to join what a thousand processes say takes longer than others should wait.
    """

    def __init__(
        self, service: plane.ControlService, record: Collect, description: plane.HostDescription
    ) -> None:
        self._service = service
        self._record = record
        procs = [proc for proc in description.procs if record.root in (None, proc.root)]
        self._description = description._replace(procs=procs)
        self._names = living_procs(description, record.root)
        self._frames: list[Any] = []
        super().__init__(service.hub, list(self._names))

    def collect(self) -> Collected:
        self.ask(self._record._replace(lines=None))
        own = _own(self._service, self._record, AGENT, self._description)
        silent = self._wait()
        # this request stays known as long as one does not answer
        frames, self._frames = self._frames, []
        answers = [self._read(frame, silent) for frame in frames]
        del frames
        joined = join([own, *filter(None, answers)], silent, self._record.limit)
        return joined._replace(clock=time.time_ns() // 1000)

    def _wait(self) -> dict[str, str]:
        """Returns who has not answered, and why."""
        patience = self._record.patience
        self.wait(patience, patience + _LIMIT)
        with self._news:  # what comes from here on is too late
            late, self.waiting = self.waiting, set()
        return {
            self._names[self._addresses[index]]: f"did not answer within {patience:g} s"
            for index in late
        }

    def _read(self, frame: Any, silent: dict[str, str]) -> Collected | None:
        if frame.flags == plane.DEAD:  # it has ended meanwhile
            return None
        if why := plane.refusal(frame):
            silent[self._names[self._addresses[frame.rank]]] = why
            return None
        answer: Collected = plane.pickling.loads(frame.payload, frame.buffers)
        return answer

    def take(self, index: int, frame: Any) -> None:
        self._frames.append(frame)


HANDLERS = (_collect,)
