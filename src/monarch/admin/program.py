"""The program under inspection, and its answers, shared by simultaneous requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from .. import config
from .._ours import user_name
from ..control import GetJob
from ..errors import MonarchError, SupervisionError
from ..logs.filter import LineFilter
from ..programs import Connection, ProcAddress, connect
from ..stacks.py_spy import RunPySpy
from ..telemetry import Collected
from ..telemetry.at_fault import AwaitFault
from ..telemetry.gather import of_program, question
from ..telemetry.programs import SCHEMA, Processes
from ..telemetry.prometheus import SCRAPED
from ..telemetry.query import Limits, run
from ..telemetry.query import TableSource as Tables
from ..telemetry.result import QueryResult
from ..telemetry.tables import ON_REQUEST
from ..why import Verdict
from ..why.gather import of_program as why
from . import picture
from .arrow import Beside, Sent, Snapshots
from .feeds import Feed
from .keys import ACT, VIEW
from .routes import ApiError
from .tree import TABLES, Tree

T = TypeVar("T")

OF_ACT = frozenset({"stacks", *ON_REQUEST})
"""Tables that are there for the role `ACT` alone."""

_FRESH = 1.0  # seconds for which a result is given to later requests, too
_MOST_DUMPS = 100
_PATIENCE = 0.5  # seconds in which a process answers its agent
_BEYOND = 2.0  # seconds that an answer takes beside what it is about


class Shared(Generic[T]):
    """Something that is looked for when it is asked for, and once for all who ask meanwhile.

    Args:
        look: Finds it.
        fresh: Seconds for which it is given to who asks later.
    """

    def __init__(self, look: Callable[[], T], fresh: float = _FRESH) -> None:
        self._look = look
        self._fresh = fresh
        self._lock = threading.Lock()
        self._found: tuple[float, T] | None = None

    def get(self) -> T:
        """It, as it was when this was called, or a little earlier."""
        earliest = time.monotonic() - self._fresh
        with self._lock:
            if self._found is None or self._found[0] < earliest:
                begun = time.monotonic()
                self._found = begun, self._look()
            return self._found[1]


class WatchedProgram:
    """A program, as the routes see it.

    Args:
        connection: To it.

    Attributes:
        saved: Whether it is the file of one that has ended.
        place: A function, and its arguments, by which a child process reaches it; None for the
            program that a helper serves.
        ended: Set when the program has ended.
        tree: Of all hosts, procs and actors.
        glance: The rows of `picture.TABLES`.
        verdict: Why it does not go on.
        job: The job that it uses, for people; empty where it uses none, or does not say.
        metrics: The tables of which metrics are made.
        feeds: That are there, by name.
        dumps: Those of py-spy that are kept, by id.
        snapshots: Rows of snapshots that were sent here.
        at_fault: The rows of `picture.TABLES` when an unhandled failure ended the program.
    """

    saved = False
    place: tuple[Callable[..., WatchedProgram], tuple[Any, ...]] | None = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ended = threading.Event()
        self.since = time.time()
        self.tree = Shared(lambda: Tree(self.collect(*TABLES), time.time()))
        self.glance: Shared[Collected] = Shared(self.seen)
        self.verdict: Shared[Verdict] = Shared(lambda: why(connection), 2 * _FRESH)
        self.job: Shared[str] = Shared(self._job)
        self.metrics = Shared(lambda: self.collect(*SCRAPED))
        self.feeds: dict[str, Feed] = {}
        self.dumps: dict[str, Any] = {}
        self.snapshots = Snapshots()
        self.at_fault: Collected | None = None
        self._lock = threading.Lock()
        self._shared: dict[str, Shared[Any]] = {}

    @property
    def folder(self) -> str:
        """The folder with files of its runs."""
        return self.connection.program.folder

    @property
    def about(self) -> dict[str, Any]:
        """The command, process, host, begin, user and job, for people."""
        told, machine = self.connection.program._asdict(), self.connection.description.machine
        return {**told, "host": machine, "user": user_name(), "job": self.job.get()}

    def _job(self) -> str:
        with suppress(MonarchError, TimeoutError):
            return str(self.ask(self.connection.root, GetJob(), _PATIENCE))
        return ""

    @property
    def pid(self) -> int | None:
        """The pid of its client; None if it has ended."""
        return self.connection.program.pid

    def time(self) -> dict[str, Any]:
        """The time there, and whether it goes on."""
        return {"now": time.time(), "runs": True}

    def wait(self) -> None:
        """Wait for its end."""
        fault = self.connection.ask(self.connection.root, AwaitFault(tuple(picture.TABLES)))
        self.connection.wait()
        with suppress(SupervisionError, TimeoutError):  # no failure has ended it
            self.at_fault = fault.get(timeout=_FRESH)

    def collect(
        self,
        *tables: str,
        since_us: int | None = None,
        limit: int = 100_000,
        within: float | None = None,
        lines: LineFilter | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
    ) -> Collected:
        """Rows of tables, of all processes; processes that have not answered in time are named.

        Args:
            tables: Their names.
            since_us: See `telemetry.read`.
            limit: See `telemetry.read`.
            within: Seconds for each host; None for those of the configuration.
            lines: See `Collect`.
            columns: See `telemetry.read`.

        Raises:
            SupervisionError: The program has ended.
        """
        seconds: float = (
            config.value("mesh_admin_single_host_timeout") if within is None else within
        )
        wanted = question(tables, since_us, limit, columns)._replace(
            patience=min(_PATIENCE, seconds), lines=lines
        )
        found = of_program(self.connection, wanted, max(0.0, seconds - wanted.patience)).get()
        own = self.connection.description.agent.host
        if (
            own in found.silent
            and self.connection.hub.process_fate(self.connection.description.agent) is not None
        ):
            raise SupervisionError("the program has ended")
        return found

    def seen(self) -> Collected:
        """The rows of which a picture is made."""
        return self.collect(*picture.TABLES, columns=picture.TABLES)

    def query(self, sql: str, role: str = VIEW, seconds: float = 10.0) -> QueryResult:
        """Rows that SQL finds in the tables. The helper has a child do this; see `Route.sql`.

        Args:
            sql: One statement that reads.
            role: Of the requester: tables of stacks are there for `ACT`.
            seconds: For all of it.

        Raises:
            QueryError: It is no such statement, or its answer is over a limit.
            TimeoutError: It took too long.
        """
        return run(sql, self.tables(role), Limits(seconds=seconds))

    def tables(self, role: str) -> Tables:
        """The source of the tables, for a role."""
        return Beside(
            Processes(self.connection) if role == ACT else _Viewed(self.connection), self.snapshots
        )

    def expect(self) -> None:
        """Look at what the front page shows, for a page that opens.

        The page asks for that when it has been loaded.
        """

        def look() -> None:
            with suppress(MonarchError, OSError):  # the page is told when it asks
                self.glance.get()
                self.verdict.get()

        threading.Thread(target=look, name="monarch-admin-expects", daemon=True).start()

    def shared(self, name: str, look: Callable[[], Any]) -> Any:
        """Return the result under that name if it is at most two seconds old; else find it now."""
        with self._lock:
            found = self._shared.setdefault(name, Shared(look, 2 * _FRESH))
        return found.get()

    def py_spy(self, reference: str) -> Any:
        """Return py-spy's dump of a process.

        Raises:
            ApiError: There is no such process, or it has ended.
        """
        process = self.proc(reference)
        limit: float = config.value("mesh_admin_pyspy_timeout")
        found = self.ask(process.agent, RunPySpy(process, limit), limit + _BEYOND)
        if found is None:
            raise ApiError("not_found", f"{reference!r} has ended")
        return found

    def ask(self, process: ProcAddress, record: tuple[Any, ...], seconds: float) -> Any:
        """Ask one process, and return its answer, within a time."""
        return self.connection.ask(process, record).get(timeout=seconds)

    def proc(self, reference: str) -> ProcAddress:
        """The address of a process.

        Raises:
            ApiError: There is no such process.
        """
        node = self.tree.get().find(reference)
        if "Proc" not in node["properties"]:
            raise ApiError("not_found", f"{reference!r} is no proc")
        name, _, host = reference.partition("@")
        return ProcAddress(host, name)

    def ingest(self, read: Callable[[], Sent]) -> None:
        """Keep rows of a snapshot, which `read` returns."""
        self.snapshots.add(read())

    def keep_dump(self, name: str, dump: Any) -> None:
        """Keep what py-spy has said; the oldest goes where there are too many."""
        with self._lock:
            self.dumps[name] = dump
            while len(self.dumps) > _MOST_DUMPS:
                del self.dumps[next(iter(self.dumps))]

    def feed(self, name: str, make: Callable[[], Feed]) -> Feed:
        """The feed of that name, which all who look share."""
        with self._lock:
            return self.feeds.setdefault(name, make())


def reach(told: Mapping[str, Any]) -> WatchedProgram:
    """The running program that a helper is told of."""
    return WatchedProgram(connect(told["pid"]))


class _Viewed(Processes):
    """The tables that need nothing of a process but its word."""

    schema = {name: columns for name, columns in SCHEMA.items() if name not in OF_ACT}


def rows_by(rows: Iterable[dict[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    """Rows of a table by one of their columns."""
    return {row[key]: row for row in rows}
