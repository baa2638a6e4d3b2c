"""The file of a run, as the routes see a program: over tables that are kept.

Requests that need a running program are refused with that reason.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from .._namedtuple import NamedTuple
from ..logs.filter import LineFilter
from ..programs import Connection
from ..telemetry import Collected
from ..telemetry.query import Limits, Schema, run
from ..telemetry.query import TableSource as Tables
from ..telemetry.run_file import RunFile
from ..telemetry.tables import TABLES
from ..why.run import of_run
from .arrow import Sent
from .child import ask
from .keys import ACT
from .logs import matching
from .program import OF_ACT, Shared, WatchedProgram
from .routes import ApiError

T = TypeVar("T")

_ENDED = "this needs a program that runs, and this is the file of one that has ended"
_READ = 30.0  # seconds in which tables of the file are read
_MOST_OPEN = 4  # files with contents that stay in memory


class KeptFile(NamedTuple):
    """A file as it was at one moment: one that takes its place is another."""

    path: Path
    written: int
    inode: int
    bytes: int


def as_it_is(path: Path) -> KeptFile:
    """A file as it is now.

    Raises:
        FileNotFoundError: It has gone.
    """
    status = path.stat()
    return KeptFile(path, status.st_mtime_ns, status.st_ino, status.st_size)


class SavedRun(WatchedProgram):
    """A program that has left a file, as the routes see it.

    Where another file takes its place, that one.

    Args:
        path: The file.
    """

    saved = True

    def __init__(self, path: str) -> None:
        super().__init__(cast(Connection, _NoProgram()))
        self.place = reopened, (path,)
        self._path = path
        self._made = _OfFile(path, lambda: ask(_when_made, path))
        self.verdict = _OfFile(path, lambda: ask(of_run, path))
        self.glance = _OfFile(path, super().seen)

    @property
    def folder(self) -> str:
        return os.path.dirname(self._path)

    @property
    def about(self) -> dict[str, Any]:
        return {"command": os.path.basename(self._path)}

    @property
    def pid(self) -> None:
        return None

    def time(self) -> dict[str, Any]:
        return {"now": self._made.get(), "runs": False}

    def seen(self) -> Collected:
        return self.glance.get()

    def wait(self) -> None:
        """Wait for ever: a file does not end."""
        threading.Event().wait()

    def tables(self, role: str) -> Tables:
        return RunFile(self._path) if role == ACT else _Viewed(self._path)

    def collect(
        self,
        *tables: str,
        lines: LineFilter | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        **of_a_program: Any,
    ) -> Collected:
        """As of a program that runs, but of all times."""
        return ask(_collected, self._path, tables, lines, columns or {})

    def ingest(self, read: Callable[[], Sent]) -> NoReturn:
        """Refuse: a file of an ended program does not change.

        Raises:
            ApiError: Always.
        """
        raise ApiError("conflict", _ENDED)


class _OfFile(Shared[T]):
    """The rows read from a file, until another takes its place.

    Of a removed one, the rows read before.

    Args:
        path: The file.
        look: Reads.
    """

    def __init__(self, path: str, look: Callable[[], T]) -> None:
        super().__init__(look, math.inf)
        self._path = Path(path)
        self._file: KeptFile | None = None

    def get(self) -> T:
        with suppress(FileNotFoundError):
            file = as_it_is(self._path)
            with self._lock:
                if file != self._file:
                    self._file, self._found = file, None
        return super().get()


@lru_cache(_MOST_OPEN)
def reopened(path: str) -> SavedRun:
    """A run, with contents kept from an earlier opening."""
    return SavedRun(path)


@lru_cache(_MOST_OPEN * len(TABLES))
def _table(path: str, name: str) -> _OfFile[Collected]:
    """A table, which a child process reads once, all its rows and columns."""
    return _OfFile(path, lambda: _read(path, name))


def _read(path: str, table: str) -> Collected:
    answer = run(f"SELECT * FROM {table}", RunFile(path), Limits(seconds=_READ))
    columns = {name: [row[name] for row in answer.rows] for name in TABLES[table].columns}
    return Collected({table: columns}, answer.silent, answer.left_out)


def _collected(
    path: str, tables: Sequence[str], lines: LineFilter | None, columns: Mapping[str, Sequence[str]]
) -> Collected:
    each = {table: _table(path, table).get() for table in tables}
    read = {
        table: {
            name: found.columns[table][name] for name in columns.get(table, found.columns[table])
        }
        for table, found in each.items()
    }
    silent = {who: why for found in each.values() for who, why in found.silent.items()}
    left_out = {table: many for found in each.values() for table, many in found.left_out.items()}
    found = Collected(read, silent, left_out)
    return found if lines is None else matching(found, lines)


def _when_made(path: str) -> float:
    sql = "SELECT max(timestamp_us) / 1e6 AS now FROM hosts"
    made: float = run(sql, RunFile(path), Limits(seconds=_READ)).rows[0]["now"]
    return made


class _NoProgram:
    """Stands for a connection where there is no program."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ApiError("conflict", _ENDED)


class _Viewed(RunFile):
    @cached_property
    def schema(self) -> Schema:
        return {name: columns for name, columns in super().schema.items() if name not in OF_ACT}
