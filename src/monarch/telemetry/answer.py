"""Answers: the columns of tables, of one process or of many, and the silent processes. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Iterable, Mapping, MutableSequence, Sequence
from itertools import compress
from typing import Any

from .._namedtuple import NamedTuple
from .registry import Incomplete
from .tables import EVENTS, TABLES

_TIME, _LASTS = "timestamp_us", "duration_us"
# An actor that has ended: by its owner, without a pid, and by the agent that has its black box.
_TOLD_TWICE = {"actors": ("id", "pid")}
_CODES = {"u64": "Q", "i64": "q", "u32": "I", "i32": "i", "f64": "d"}
"""Arrays of which numbers are packed in, by the types in `TABLES`."""

Columns = Mapping[str, Mapping[str, Sequence[Any]]]
"""Of each table its columns, which are equally long."""


class Collected(NamedTuple):
    """The collected rows.

    Attributes:
        columns: Of each table that was asked for all columns that were, also where there are no
            rows.
        silent: Hosts and processes that have not answered, and why.
        left_out: Rows that are missing, by table, as there were more than the limit. The latest are
            there.
        clock: What the clock of a host showed when its agent answered, in microseconds since 1970;
            0 elsewhere.
    """

    columns: Columns
    silent: dict[str, str]
    left_out: dict[str, int]
    clock: int = 0

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, each as a dict."""
        columns = self.columns[table]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def of_rows(
    rows: Mapping[str, Iterable[tuple[Any, ...]]],
    columns: Mapping[str, Sequence[str]],
    since_us: int | None,
    limit: int,
    who: str = "a process",
    until_us: int | None = None,
) -> Collected:
    """The answer of one process.

    Args:
        rows: Of each table, with all columns in their order.
        columns: Which are wanted, by table; all of one that is not named.
        since_us: Leave out events that were over before that.
        limit: Rows of each table; the latest of a table of events.
        who: Answers, for people.
        until_us: Leave out events that began after that.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    silent: dict[str, str] = {}
    left_out: dict[str, int] = {}
    for table, each in rows.items():
        kept: list[tuple[Any, ...]] = []
        try:
            kept.extend(each)
        except Incomplete as error:
            silent[_said_of(table, who)] = str(error)
        except Exception as error:  # costs this table alone
            kept, silent[_said_of(table, who)] = [], f"{type(error).__name__}: {error}"
        names = list(TABLES[table].columns)
        times = [row[names.index(_TIME)] for row in kept] if TABLES[table].kind == EVENTS else None
        if since_us is not None and times is not None:
            lasts = names.index(_LASTS) if _LASTS in names else None
            recent = [
                at >= since_us or _ends(row, at, lasts) >= since_us
                for row, at in zip(kept, times, strict=True)
            ]
            kept, times = list(compress(kept, recent)), list(compress(times, recent))
        if until_us is not None and times is not None:
            early = [at <= until_us for at in times]
            kept, times = list(compress(kept, early)), list(compress(times, early))
        if len(kept) > limit:
            left_out[table] = len(kept) - limit
            kept = [kept[index] for index in _latest(times, len(kept), limit)]
        by_column = zip(*kept, strict=True) if kept else ([] for _ in names)
        wanted = with_keys(table, columns.get(table, names))
        found[table] = {
            name: list(values)
            for name, values in zip(names, by_column, strict=True)
            if name in wanted
        }
    return Collected(found, silent, left_out)


def _said_of(table: str, who: str) -> str:
    return f"{table} of {who}"


CLOCK = "the clock of "
"""Begins a name in `Collected.silent`: a host has answered, but its times are not those of
others.
"""

_TOLERANCE = 1_000_000  # microseconds; hosts that keep time by NTP are within milliseconds


def skew(clock: int, asked: int, answered: int) -> str:
    """Describe the error of a clock; empty if it may be right.

    Args:
        clock: What it showed, between the two others; all in microseconds.
        asked: When it was asked, by the clock of the requester.
        answered: When its answer was there, or later.
    """
    off = min(0, clock - asked) + max(0, clock - answered)
    if abs(off) <= _TOLERANCE:
        return ""
    return (
        f"{abs(off) / 1e6:,.1f} s {'behind' if off < 0 else 'ahead'}; so are all times of its rows,"
        " and what a range of time finds there"
    )


def is_said_of(name: str, tables: Container[str]) -> bool:
    """Return whether a name in `Collected.silent` is a process, or one of `tables` of one."""
    table, is_one, _ = name.partition(" of ")
    return not is_one or table not in TABLES or table in tables


def _ends(row: tuple[Any, ...], at: int, lasts: int | None) -> float:
    """The end of an event that began at a time; infinite for one that goes on."""
    if lasts is None:
        return at
    return math.inf if row[lasts] is None else at + row[lasts]


def with_keys(table: str, columns: Sequence[str]) -> Sequence[str]:
    """The columns that processes answer with.

    With them: the column that orders events, and those that identify a row that two processes
    have.
    """
    keys = (_TIME,) if TABLES[table].kind == EVENTS else _TOLD_TWICE.get(table, ())
    return (*columns, *(key for key in keys if key not in columns))


def _once(
    columns: dict[str, MutableSequence[Any]], number: str, better: str
) -> dict[str, MutableSequence[Any]]:
    """Of rows with the same number, keep the one in which another column is not zero."""
    best: dict[int, int] = {}
    for index, (key, value) in enumerate(zip(columns[number], columns[better], strict=True)):
        if key not in best or value:
            best[key] = index
    if len(best) == len(columns[number]):
        return columns
    return {name: [values[index] for index in best.values()] for name, values in columns.items()}


def _latest(times: Sequence[int] | None, count: int, limit: int) -> Sequence[int]:
    """Which rows are kept, in their order.

    Of events, those with the latest times are kept; of other tables, the last ones.
    """
    if times is None:
        return range(count - limit, count)
    return sorted(sorted(range(count), key=times.__getitem__)[count - limit :])


def _empty(kind: str) -> MutableSequence[Any]:
    """A column without rows: packed where values are numbers, which takes a fifth of a list."""
    code = _CODES.get(kind.rstrip("?"))
    return array(code) if code else []


def _with(column: MutableSequence[Any], values: Sequence[Any]) -> MutableSequence[Any]:
    """A column with more values behind; a list from the first on that is missing."""
    if isinstance(column, array) and not isinstance(values, array):
        try:
            values = array(column.typecode, values)
        except (TypeError, OverflowError):
            column = column.tolist()
    column.extend(values)
    return column


def join(answers: Iterable[Collected], silent: Mapping[str, str], limit: int) -> Collected:
    """Combine several answers to the same question.

    Rows over the limit are left out, of events the oldest.
    """
    columns: dict[str, dict[str, MutableSequence[Any]]] = {}
    left_out: dict[str, int] = {}
    all_silent = dict(silent)
    for answer in answers:
        all_silent.update(answer.silent)
        for table, missing in answer.left_out.items():
            left_out[table] = left_out.get(table, 0) + missing
        for table, found in answer.columns.items():
            known = columns.setdefault(table, {})
            for name, values in found.items():
                if name not in known:
                    known[name] = _empty(TABLES[table].columns.get(name, ""))
                known[name] = _with(known[name], values)
    for table, keys in _TOLD_TWICE.items():
        if table in columns and columns[table].keys() >= set(keys):
            columns[table] = _once(columns[table], *keys)
    for table, found in columns.items():
        count = max(map(len, found.values()), default=0)
        if count > limit:
            left_out[table] = left_out.get(table, 0) + count - limit
            kept = _latest(found[_TIME] if TABLES[table].kind == EVENTS else None, count, limit)
            columns[table] = {
                name: [values[index] for index in kept] for name, values in found.items()
            }
    return Collected(columns, all_silent, left_out)
