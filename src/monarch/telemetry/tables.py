"""The tables of telemetry, as plain data: their columns and types, which `tables.txt` lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .._namedtuple import NamedTuple

STATE, EVENTS = "state", "events"
"""Kinds of tables: the state at the moment of the query; or events, each row with a `timestamp_us`.
"""


class Table(NamedTuple):
    """A table.

    Attributes:
        about: One line for people.
        kind: `STATE` or `EVENTS`; of the latter a time range can be asked for.
        columns: Their types by their names, in order.
    """

    about: str
    kind: str
    columns: dict[str, str]


def _read() -> Iterator[tuple[str, Table]]:
    """The tables of the file: a line that names one, and its columns, indented."""
    for block in Path(__file__).with_name("tables.txt").read_text("utf-8").split("\n\n"):
        row, *lines = (line for line in block.splitlines() if line[0] != "#")
        name, kind, about = (cell.strip() for cell in row.split("|"))
        columns = [each.split() for each in ",".join(lines).split(",") if " " in each.strip()]
        yield name, Table(about, kind, dict(columns))


TABLES: dict[str, Table] = dict(_read())
"""All tables by their names."""

EMPTY = {
    "ordering_sessions": (
        "messages of a sender come in order, over one connection, so there are no such sessions"
    ),
    "resolution_errors": "who does not answer is named with each answer",
    "pyspy_local_variables": "values of variables are not recorded; `monarch debug` shows them",
}
"""Tables of Monarch 0.7 that nothing fills, and why."""

ON_REQUEST = frozenset(name for name in TABLES if name.startswith("pyspy_"))
"""Tables for which processes are stopped for a moment, so that they are filled for queries that
read them, and for nothing else.
"""


def number_of(row: Mapping[str, Any], name: str) -> int | float:
    """The number of a metric's row, in whichever column has it; 0 if none has.

    The columns are ``NAME_i64``, ``NAME_u64`` and ``NAME_f64``.
    """
    found = (row[f"{name}_{kind}"] for kind in ("i64", "u64", "f64"))
    return next((number for number in found if number is not None), 0)
