"""Arrow over HTTP: answers to SQL, and snapshots that others send.

`encode` and `decode` are of streams of Arrow's IPC. `Snapshots` keeps the rows that were sent for
tables of the tree, and `Beside` has queries see them, under the ids that they came with.
"""

from __future__ import annotations

import io
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

from .._extras import of_extra
from .._namedtuple import NamedTuple
from ..telemetry.programs import SCHEMA
from ..telemetry.query import FoundRows, Needs, Schema, as_columns, library, quoted
from ..telemetry.query import TableSource as Tables
from ..telemetry.tables import TABLES
from .arrow_size import unpacked_size

MEDIA = "application/vnd.apache.arrow.stream"

OF_SNAPSHOTS = frozenset(name for name, table in TABLES.items() if "snapshot_id" in table.columns)
"""Tables for which rows can be sent."""

MOST_BODY = 16 << 20
"""Bytes of a stream, as in Monarch 0.7."""

_MOST_KEPT = 64 << 20  # bytes of all snapshots
_UNPACKED = 4  # times the bytes of a stream that its values may take: it can be compressed
_SETTINGS = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "memory_limit": "256MiB",
    "threads": "1",
}


def _streams() -> Any:
    missing = (
        "Arrow over HTTP needs arro3-io where the program runs: pip install 'pymonarch[arrow]'"
    )
    return of_extra("arro3.io", missing)


def encode(table: Any) -> bytes:
    """The stream of a table.

    Args:
        table: Anything that exports an Arrow stream.

    Raises:
        ImportError: arro3-io is not installed.
    """
    written = io.BytesIO()
    _streams().write_ipc_stream(table, written)
    return written.getvalue()


def decode(stream: bytes) -> Any:
    """The table of a stream, as an `arro3.core.Table`.

    Raises:
        ValueError: It is no such stream, or too large when unpacked.
        ImportError: arro3-io is not installed.
    """
    streams = _streams()
    try:
        taken = unpacked_size(stream)
        if taken <= _UNPACKED * MOST_BODY:
            return streams.read_ipc_stream(io.BytesIO(stream)).read_all()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust's is no Exception
        raise ValueError(f"the body is no stream of Arrow's: {error}") from None
    raise ValueError(
        f"a stream holds at most {_UNPACKED * MOST_BODY:,} bytes of values, and this one {taken:,}"
    )


class Sent(NamedTuple):
    """A body: rows of one table.

    Attributes:
        name: Of the table.
        rows: How many.
        stream: They, with all columns of the table.
    """

    name: str
    rows: int
    stream: bytes


class Snapshots:
    """Rows that were sent, as long as there is room: the oldest go."""

    def __init__(self, sent: Iterable[Sent] = (), gone: Mapping[str, int] = {}) -> None:
        self._lock = threading.Lock()
        self._sent = deque(sent)
        self._gone = Counter(gone)

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return Snapshots, (list(self._sent), dict(self._gone))

    def __bool__(self) -> bool:
        return bool(self._sent)

    def add(self, sent: Sent) -> None:
        """Keep rows; see `read`."""
        with self._lock:
            self._sent.append(sent)
            while sum(len(each.stream) for each in self._sent) > _MOST_KEPT:
                oldest = self._sent.popleft()
                self._gone[oldest.name] += oldest.rows

    def add_to(self, found: FoundRows) -> FoundRows:
        """The rows that a source has found, and those that were sent.

        Args:
            found: Of the source.
        """
        with self._lock:
            sent, gone = list(self._sent), self._gone.copy()
        tables, silent, left_out = dict(found.tables), dict(found.silent), dict(found.left_out)
        for name, _, stream in sent:
            if name in tables:
                silent.pop(f"table {name}", None)  # that it is always empty
                tables[name] = _joined(tables[name], _streams().read_ipc_stream(io.BytesIO(stream)))
        for name in gone.keys() & tables.keys():
            left_out[name] = left_out.get(name, 0) + gone[name]
        return FoundRows(tables, silent, left_out)


class Beside:
    """A source: another one, and the snapshots that were sent.

    Args:
        source: The other one.
        snapshots: They.
    """

    def __init__(self, source: Tables, snapshots: Snapshots) -> None:
        self._source = source
        self._snapshots = snapshots

    @property
    def schema(self) -> Schema:
        return self._source.schema

    @property
    def events(self) -> frozenset[str]:
        return self._source.events

    def collect(self, needs: Needs, seconds: float) -> FoundRows:
        return self._snapshots.add_to(self._source.collect(needs, seconds))


def read(name: str, stream: bytes) -> Sent:
    """Rows in the columns and types of a table, by duckdb, which says what does not fit.

    Args:
        name: One of `OF_SNAPSHOTS`.
        stream: Of Arrow's IPC, with columns of that table.

    Raises:
        ValueError: There is no such table, or the stream has not its columns.
        ImportError: duckdb, arro3-core or arro3-io is not installed.
    """
    if name not in OF_SNAPSHOTS:
        raise ValueError(f"{name[:80]!r} is no table of snapshots")
    sent, duckdb, arro3 = decode(stream), library("duckdb"), library("arro3.core")
    kinds = {
        column: f"{SCHEMA[name][column]}{'' if kind.endswith('?') else ' NOT NULL'}"
        for column, kind in TABLES[name].columns.items()
    }
    with duckdb.connect(":memory:", config=_SETTINGS) as database:
        try:
            database.execute(f"CREATE TABLE {quoted(name)} ({as_columns(kinds)})")
            database.register("sent", sent)
            database.execute(f"INSERT INTO {quoted(name)} BY NAME SELECT * FROM sent")
        except duckdb.Error as error:
            raise ValueError(f"{name}: {str(error).splitlines()[0]}") from None
        table = arro3.Table.from_arrow(database.table(name))
    return Sent(name, table.num_rows, encode(table))


def _joined(table: Any, rows: Any) -> Any:
    batches = [*table.to_batches(), *rows.read_all().select(table.column_names).to_batches()]
    return library("arro3.core").Table.from_batches(batches, schema=table.schema)
