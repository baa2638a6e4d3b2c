"""Answers: the columns of tables, of one process or of many, and who did not answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._namedtuple import NamedTuple
from .tables import EVENTS, TABLES

Columns = dict[str, dict[str, list[Any]]]
"""Of each table its columns, which are equally long."""


class Collected(NamedTuple):
    """What was found.

    Attributes:
        columns: Of each table that was asked for all columns that were, also where there are no rows.
        silent: Hosts and processes that have not answered, and why.
        left_out: Rows that are missing, by table, as there were more than the limit. The latest are there.
    """

    columns: Columns
    silent: dict[str, str]
    left_out: dict[str, int]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, each as a dict."""
        columns = self.columns[table]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def of_rows(
    rows: Mapping[str, Iterable[tuple[Any, ...]]],
    columns: Mapping[str, Sequence[str]],
    since_us: int | None,
    limit: int,
) -> Collected:
    """The answer of one process.

    Args:
        rows: Of each table, with all columns in their order; of a table of events, the latest last.
        columns: Which are wanted, by table; all of one that is not named.
        since_us: Leave out events before that.
        limit: Rows of each table.
    """
    found: Columns = {}
    left_out: dict[str, int] = {}
    for table, each in rows.items():
        kept = list(each)
        names = list(TABLES[table].columns)
        if since_us is not None and TABLES[table].kind == EVENTS:
            at = names.index("timestamp_us")
            kept = [row for row in kept if row[at] >= since_us]
        if len(kept) > limit:
            left_out[table] = len(kept) - limit
            kept = kept[len(kept) - limit :]
        by_column = zip(*kept, strict=True) if kept else ([] for _ in names)
        wanted = columns.get(table, names)
        found[table] = {name: list(values) for name, values in zip(names, by_column, strict=True) if name in wanted}
    return Collected(found, {}, left_out)


def join(answers: Iterable[Collected], silent: Mapping[str, str], limit: int) -> Collected:
    """Several answers to the same question as one."""
    columns: Columns = {}
    left_out: dict[str, int] = {}
    all_silent = dict(silent)
    for answer in answers:
        all_silent.update(answer.silent)
        for table, missing in answer.left_out.items():
            left_out[table] = left_out.get(table, 0) + missing
        for table, found in answer.columns.items():
            known = columns.setdefault(table, {name: [] for name in found})
            for name, values in found.items():
                known[name] += values
    for table, found in columns.items():
        over = max(map(len, found.values()), default=0) - limit
        if over > 0:
            left_out[table] = left_out.get(table, 0) + over
            columns[table] = {name: values[over:] for name, values in found.items()}
    return Collected(columns, all_silent, left_out)
