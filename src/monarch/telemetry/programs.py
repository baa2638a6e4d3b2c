"""The tables of running programs, as a source of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..actor import Future
from ..programs import Connection
from .answer import Collected
from .gather import of_program, question, read
from .query import FoundRows, Needs, Schema, library
from .tables import EMPTY, EVENTS, TABLES

MOST_ROWS = 1_000_000
"""Rows of a table that a query sees; a larger table is cut, and the result says so."""

_TYPES = {
    "u64": ("UBIGINT", "uint64"), "i64": ("BIGINT", "int64"), "u32": ("UINTEGER", "uint32"),
    "i32": ("INTEGER", "int32"), "f64": ("DOUBLE", "float64"), "bool": ("BOOLEAN", "bool"),
    "str": ("VARCHAR", "utf8"),
}  # fmt: skip
"""duckdb's and Arrow's names of the types in `TABLES`."""

SCHEMA: Schema = {
    name: {column: _TYPES[kind.rstrip("?")][0] for column, kind in table.columns.items()}
    for name, table in TABLES.items()
}


class Processes:
    """A source: what the processes of a program answer.

    Args:
        connection: To a running program; None: this process is of the program.
        most: Rows of each table, at most; the latest are taken.
    """

    schema = SCHEMA
    events = frozenset(name for name, table in TABLES.items() if table.kind == EVENTS)

    def __init__(self, connection: Connection | None = None, most: int = MOST_ROWS) -> None:
        self._connection = connection
        self._most = most

    def collect(self, needs: Needs, seconds: float) -> FoundRows:
        found = self._ask(needs).get(timeout=seconds)
        return FoundRows(
            {name: arrow(name, columns) for name, columns in found.columns.items()},
            {**found.silent, **unfilled(needs.columns)},
            found.left_out,
        )

    def _ask(self, needs: Needs) -> Future[Collected]:
        if self._connection is None:
            return read(
                *needs.columns,
                since_us=needs.since_us,
                until_us=needs.until_us,
                limit=self._most,
                columns=needs.columns,
            )
        wanted = question(needs.columns, needs.since_us, self._most, needs.columns, needs.until_us)
        return of_program(self._connection, wanted)


def unfilled(tables: Iterable[str]) -> dict[str, str]:
    """The tables that are always empty, as `FoundRows.silent` has it."""
    return {
        f"table {name}": f"it is always empty: {EMPTY[name]}" for name in tables if name in EMPTY
    }


def arrow(table: str, columns: Mapping[str, Sequence[Any]]) -> Any:
    """Columns that were collected as a table of Arrow's."""
    arro3 = library("arro3.core")
    types = {
        name: getattr(arro3.DataType, _TYPES[TABLES[table].columns[name].rstrip("?")][1])()
        for name in columns
    }
    arrays = [_array(arro3, values, types[name]) for name, values in columns.items()]
    schema = arro3.Schema([arro3.Field(name, kind, nullable=True) for name, kind in types.items()])
    return arro3.Table.from_arrays(arrays, schema=schema)


def _array(arro3: Any, values: Sequence[Any], kind: Any) -> Any:
    try:
        return arro3.Array(values, type=kind)
    except UnicodeEncodeError:  # half a character, in what a process has printed
        return arro3.Array(
            [text and text.encode(errors="replace").decode() for text in values], type=kind
        )
