"""Profiles: what all processes of a program do in a window of time, as a file for ui.perfetto.dev.

`monarch profile`, the admin interface and programs use `Profile`. Meanwhile each process records
each of its messages, so that a message costs about a microsecond more. The file is made from the
tables afterwards. Times of other hosts are shifted to the clock of this one: the offset comes from
the quickest answer of a host, and is exact to half its round trip; a smaller one counts as 0.

The wait ends when each process has answered or is lost, or after `_LIMIT`; the result names the
processes that have not answered.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._core.plane import DescribeHost, HostDescription, Hub, ProcAddress, current_hub, pickling
from .._ours import opened
from ..actor import Future
from ..programs import PATIENCE, Connection, Gathering, agents_here, ask
from .answer import Collected
from .gather import gather, question
from .ids import host_id, proc_id
from .registry import living_procs
from .timeline import NEEDS, Row, Timeline, Window, draw
from .watch import Watch, Watching

_LIMIT = 10.0  # seconds
_TORCH_LIMIT = 60.0  # seconds: torch's profiler imports much, and makes a file of what it has seen
_LONGEST = 3600.0  # seconds
_MOST_ROWS = 200_000  # of each table: some 50 MB


class Profile:
    """The profile of all processes of a program during a ``with``; see `JobTrait.profile`.

    Args:
        on_trace_ready: Called with this, once the block has ended without an exception.
        torch: Whether torch's profiler runs in each process that uses torch, too.
        connection: To the program that is meant; None: this one.

    Attributes:
        missing: Processes that did not answer, or rows that are not in the file, and why.
        timeline: The result; None before the end.
    """

    def __init__(
        self,
        on_trace_ready: Callable[[Profile], object] | None = None,
        torch: bool = False,
        connection: Connection | None = None,
    ) -> None:
        self.missing: dict[str, str] = {}
        self.timeline: Timeline | None = None
        self._ready = on_trace_ready
        self._torch = torch
        self._connection = connection
        self._id = os.urandom(8).hex()
        self._limit = _LIMIT
        self._watched: set[int] = set()  # processes that have begun, by `procs.id`
        self._begin = self._end = 0
        # by host: nanoseconds, and half the time that the answer took
        self._ahead: dict[str, tuple[float, float]] = {}

    def __enter__(self) -> Profile:
        if self._begin:
            raise RuntimeError("this profile was used already: call profile() again")
        self._hub, self._root = self._whose()
        self._watch(_LONGEST)
        self._begin = time.time_ns() // 1000
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._end = time.time_ns() // 1000
        self._watch(0)
        if error is None:
            self._collect()
            if self._ready is not None:
                self._ready(self)

    def record(self, seconds: float) -> None:
        """As ``with`` around so many seconds.

        Raises:
            ValueError: They are not more than 0, or more than an hour.
        """
        if not 0 < seconds <= _LONGEST:
            raise ValueError(
                f"a profile takes more than 0 and at most {_LONGEST:g} seconds, not {seconds!r}"
            )
        with self:
            time.sleep(seconds)

    def export_perfetto_trace(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the file. Returns where.

        Args:
            path: By default one that the time names, in the working directory.

        Raises:
            RuntimeError: The block has not ended.
            OSError: The file can't be written.
        """
        if not self._end:
            raise RuntimeError("a profile can be exported when its block has ended")
        if self.timeline is None:  # the block has raised
            self._collect()
        assert self.timeline is not None
        if path is None:
            target = Path(time.strftime("monarch-%Y%m%d-%H%M%S.pftrace"))
            with opened(".", root=".") as here:  # another user may guess the name
                here.replace(target.name, self.timeline.content)
        else:
            target = Path(path)
            target.write_bytes(self.timeline.content)
        return target

    def _whose(self) -> tuple[Hub, ProcAddress | None]:
        if self._connection is not None:
            return self._connection.hub, self._connection.owner
        hub = current_hub()
        return hub, hub.root

    def _agents(self) -> Sequence[ProcAddress]:
        if self._connection is not None:
            return self._connection.agents
        return agents_here().get(timeout=PATIENCE)

    def _watch(self, seconds: float) -> None:
        """Have all processes begin, or end."""
        agents = self._agents()
        names = {agent: f"host {agent.host}" for agent in agents}
        descriptions = [ask(self._hub, agent, DescribeHost()) for agent in agents]
        end = time.monotonic() + self._limit
        for asked in descriptions:
            names.update(self._named(asked, max(0.0, end - time.monotonic())))
        limit = _TORCH_LIMIT if self._torch else self._limit
        gathering = _Gathering(names)
        gathering.ask(self._hub, Watch(self._id, seconds, self._torch), limit).get()
        self.missing.update(gathering.silent)
        for address, (answer, ahead, error) in gathering.answers.items():
            if seconds > 0:
                self._watched.add(proc_id(address))
            if error < self._ahead.get(address.host, (0.0, float("inf")))[1]:
                self._ahead[address.host] = ahead, error
            if answer.note:
                self.missing[names[address]] = answer.note
            elif (
                seconds <= 0
                and not answer.looks
                and address not in agents
                and not address.is_client
            ):
                self.missing[names[address]] = (
                    "was spawned without telemetry: its messages are not recorded"
                )

    def _named(self, described: Future[HostDescription], seconds: float) -> dict[ProcAddress, str]:
        try:
            found = described.get(timeout=seconds)
        except Exception:  # the host is named as it does not answer the record either
            return {}
        return living_procs(found, self._root)

    def _collect(self) -> None:
        agents = self._agents()
        ahead = {
            host: round(by / 1000) if abs(by) > error else 0
            for host, (by, error) in self._ahead.items()
        }
        since = self._begin + min(0, *ahead.values(), 0)
        wanted = question(NEEDS, since, _MOST_ROWS, NEEDS)._replace(root=self._root)
        found = gather(self._hub, agents, wanted).get()
        tables = {table: found.rows(table) for table in NEEDS}
        self._note(found, tables)
        window = Window(self._begin, self._end, {host_id(host): by for host, by in ahead.items()})
        self.timeline = draw(tables, window)

    def _note(self, found: Collected, tables: Mapping[str, Sequence[Row]]) -> None:
        self.missing.update(found.silent)
        for table, count in found.left_out.items():
            self.missing[f"table {table}"] = f"{count:,} rows were left out: too many"
        sampled = [row["to_actor_id"] for row in tables["messages"] if row["sample_weight"] > 1]
        sampled += [
            row["sender_actor_id"] for row in tables["sent_messages"] if row["sample_weight"] > 1
        ]
        proc_of = {row["id"]: row["proc_id"] for row in tables["actors"]}
        late = {proc_of.get(actor) for actor in sampled} - self._watched
        for row in tables["procs"]:
            if row["id"] in late:
                self.missing[f"{row['mesh']}[{row['rank']}]"] = (
                    "was spawned after the profile had begun, and has looked at some of its"
                    " messages only"
                )
            if row["state"] == "ended" and row["id"] in self._watched:
                self.missing[f"{row['mesh']}[{row['rank']}]"] = (
                    f"has ended, most of what it did is lost: {row['reason']}"
                )


class _Gathering(Gathering[None]):
    """The answers of all processes, with what their clocks said."""

    def __init__(self, names: Mapping[ProcAddress, str]) -> None:
        self._begun = time.time_ns()
        self._names = names
        self._came_at: dict[int, int] = {}
        self.answers: dict[ProcAddress, tuple[Watching, float, float]] = {}
        super().__init__(list(names), "the profile of a program")

    def reply(self, frame: Any) -> bool:
        self._came_at[frame.rank] = time.time_ns()
        return super().reply(frame)

    def name_of(self, rank: int) -> str:
        return self._names[self._agents[rank]]

    def read(self, frames: Sequence[Any]) -> None:
        for frame in frames:
            answer: Watching = pickling.loads(frame.payload, frame.buffers)
            came = self._came_at[frame.rank]
            ahead = answer.now - (self._begun + came) / 2
            self.answers[self._agents[frame.rank]] = answer, ahead, (came - self._begun) / 2
