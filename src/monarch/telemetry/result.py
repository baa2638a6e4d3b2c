"""The answer to a query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .._extras import of_extra
from .._lazy import shown_by
from .._words import aligned, named
from .answer import CLOCK

_SHOWN = 50  # rows of a `repr`


class QueryResult(dict[str, list[dict[str, Any]]]):
    """The answer to a query; as in Monarch 0.7, a dict with the rows under ``"rows"``.

    Attributes:
        columns: Names of the columns, in the order of the query.
        silent: Hosts and processes that have not answered, and why: what they have is missing.
        left_out: By table, how many rows the query did not see, as there were too many. Those are
            the oldest.
    """

    _repr_html_ = shown_by("answer")

    def __init__(
        self,
        rows: list[dict[str, Any]],
        columns: Sequence[str],
        table: Any,
        silent: Mapping[str, str],
        left_out: Mapping[str, int],
    ) -> None:
        super().__init__(rows=rows)
        self.columns = list(columns)
        self.silent = dict(silent)
        self.left_out = dict(left_out)
        self._table = table

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each row by column, in values that JSON has."""
        return self["rows"]

    def arrow(self) -> Any:
        """The answer as an `arro3.core.Table`, which anything that speaks Arrow can read.

        Examples are pyarrow, polars, pandas and duckdb.

        Raises:
            RuntimeError: The answer was sent here by another process: that has the table.
        """
        if self._table is None:
            raise RuntimeError(
                "an answer that was sent has rows alone: call arrow() where the query was made"
            )
        return self._table

    def df(self) -> Any:
        """The answer as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = of_extra("pandas", "df() needs {}: pip install pandas")
        return pandas.DataFrame(self.rows, columns=self.columns)

    @property
    def warnings(self) -> list[str]:
        """The gaps, one line each."""
        return missing(self.silent, self.left_out)

    def __reduce__(self) -> tuple[Any, ...]:
        # without the table: arro3's can't be pickled
        return QueryResult, (self.rows, self.columns, None, self.silent, self.left_out)

    def __repr__(self) -> str:
        more = [f"... of {len(self.rows)} rows"] if len(self.rows) > _SHOWN else []
        return "\n".join([as_table(self.columns, self.rows[:_SHOWN]), *more, *self.warnings])


def missing(silent: Mapping[str, str], left_out: Mapping[str, int]) -> list[str]:
    """List the gaps of an answer or a file, one line each."""
    lines = [
        f"{who} {'is off' if who.startswith(CLOCK) else 'did not answer'}: {why}"
        for who, why in silent.items()
    ]
    return lines + [
        f"{count:,} rows of {table} were left out: too many" for table, count in left_out.items()
    ]


def as_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table for people, with their number below.

    Nothing in it moves a terminal's cursor.
    """
    count = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    if not rows:
        return count
    cells = [[*map(named, columns)]]
    cells += [[_cell(row[name]) for name in columns] for row in rows]
    rule = ["-" * max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *lines = aligned(cells, " | ")
    return "\n".join([head, "-+-".join(rule), *lines, count])


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    text = value
    if not isinstance(value, str):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return named(text)
