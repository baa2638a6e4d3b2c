"""SQL over tables that are collected for the question.

Knows duckdb, and nothing of processes: they are behind a `TableSource`.

A query has a database of its own, in memory. It runs in these steps:

    one statement, which reads          anything else is refused
    empty tables, and duckdb's plan     say which tables and columns are wanted, and since when
    `TableSource.collect`               brings them, and who did not answer
    settings are locked; the query      no files, no network; bounds of time, memory, threads and rows

What ends the wait: the answer, an error, `Limits.seconds`, or Ctrl-C. duckdb can't interrupt one call
of a scalar function (``repeat('x', 4e9)``), so it computes on a thread of its own, which is left
behind then: it drops its database when that call has ended.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Protocol, TypeVar

from .._extras import of_extra
from .._namedtuple import NamedTuple
from ..errors import QueryError
from .result import QueryResult

Schema = Mapping[str, Mapping[str, str]]
"""Of each table the columns, in order, with duckdb's types."""

T = TypeVar("T")

# seconds after which a query is interrupted once more: it may have been between two statements
_AGAIN = 0.05
_PATIENCE = 0.5  # seconds for which one that was interrupted is waited for
_AS_THEY_ARE = re.compile(r'U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|BOOLEAN|VARCHAR|"NULL"')
_NESTED = re.compile(r".*\]|(STRUCT|MAP|UNION)\(.*", re.DOTALL)
_EXPLAIN = re.compile(
    r"\bEXPLAIN\b(\s+ANALYZE\b)?(\s*\((\s*(FORMAT|ANALYZE)\b[^)]*)\))?", re.IGNORECASE
)
_SINCE = re.compile(r"\(*timestamp_us ?>=? ?(\d+)\)*")
_UNTIL = re.compile(r"\(*timestamp_us ?<=? ?(\d+)\)*")
_ANSWER = "_answer"
_READS = re.compile(
    r"duckdb_\w+|pragma_\w+|(icu_calendar|pg_timezone)_names|json_(each|tree)|range|generate_series"
    r"|unnest|repeat(_row)?|summary|histogram(_values)?"
)
_ONLY = "a query only reads: SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN, and no"
_CALLED = """SELECT ast->>'error_message', ast->>'$..function.function_name', ast->>'$..function_name'
    FROM (SELECT json_serialize_sql(?::VARCHAR) AS ast)"""


class Limits(NamedTuple):
    """The bounds of a query.

    Attributes:
        seconds: For all of it.
        rows: Of the answer.
        memory: Of the database; see duckdb's ``memory_limit``.
        threads: That compute.
    """

    seconds: float = 10.0
    rows: int = 1_000_000
    memory: str = "1GiB"
    threads: int = 2


class Needs(NamedTuple):
    """The tables and columns that a query reads.

    Attributes:
        columns: By table, at least one each.
        since_us: Older events are not wanted; in microseconds since 1970. None: all are.
        until_us: Later events are not wanted either, so that they push out none that are.
    """

    columns: dict[str, tuple[str, ...]]
    since_us: int | None = None
    until_us: int | None = None


class FoundRows(NamedTuple):
    """The rows that a source has found.

    Attributes:
        tables: By name; anything that exports an Arrow stream. Reading them takes them out.
        silent: Processes that did not answer, and why.
        left_out: By table how many rows are missing, as there were too many.
    """

    tables: dict[str, Any]
    silent: Mapping[str, str]
    left_out: Mapping[str, int]


class TableSource(Protocol):
    """The source of tables."""

    @property
    def schema(self) -> Schema:
        """The tables that can be asked for, with their columns."""

    @property
    def events(self) -> frozenset[str]:
        """The tables for which a time range can be asked for."""

    def collect(self, needs: Needs, seconds: float) -> FoundRows:
        """Get what a query reads.

        Raises:
            TimeoutError: It takes longer than this.
        """


def library(name: str) -> Any:
    """Import a library that queries need.

    Raises:
        ImportError: It is not installed; the message says how to get it.
    """
    return of_extra(name, "queries need {}: pip install 'pymonarch[telemetry]'")


def quoted(name: str) -> str:
    """Quote a name, with any characters, as SQL does."""
    return '"' + name.replace('"', '""') + '"'


def run(
    sql: str,
    source: TableSource,
    limits: Limits = Limits(),  # noqa: B008  # is immutable
) -> QueryResult:
    """Answer a question.

    Args:
        sql: One statement, in duckdb's dialect: SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN.
        source: Where the tables come from.
        limits: Bounds.

    Raises:
        QueryError: It is no such statement, or the database refuses it, or its answer has more rows
            than the limit.
        TimeoutError: It took too long.
        ImportError: duckdb or arro3 is not installed.
    """
    if limits.seconds <= 0:
        raise ValueError(f"a query needs a time above 0 s, got {limits.seconds:g}")
    duckdb, arro3 = library("duckdb"), library("arro3.core")
    end = time.monotonic() + limits.seconds
    database = _connect(duckdb, limits)

    def plan() -> tuple[str, Needs]:
        whole = sql.encode(errors="replace").decode()  # half a character is none for duckdb
        text, planned = _only_statement(duckdb, database, whole)
        _make_tables(database, source.schema)
        return text, _needs(database, planned, source)

    def compute() -> QueryResult:
        while found.tables:  # none is there twice while the database computes
            _insert(database, *found.tables.popitem())
        database.execute("RESET disabled_optimizers; SET lock_configuration = true")
        database.query(text).limit(limits.rows + 1).create(_ANSWER)
        answer = database.table(_ANSWER)
        [(count,)] = database.execute(f"SELECT count(*) FROM {_ANSWER}").fetchall()
        if count > limits.rows:
            raise QueryError(
                f"the answer has more than {limits.rows:,} rows, which is the limit: ask for less,"
                " by WHERE, GROUP BY or LIMIT"
            )
        rows = _rows(database, answer.columns, answer.types)
        try:
            table = arro3.Table.from_arrow(answer)
        except Exception as error:  # where memory is short; it has no class of its own
            raise QueryError(str(error).partition("\n")[0]) from None
        return QueryResult(rows, answer.columns, table, found.silent, found.left_out)

    busy = _Busy(database, end)
    took = f"the query took longer than {limits.seconds:g} s: ask for less, or give it more time"
    try:
        text, needs = busy.run(plan)
        found = (
            source.collect(needs, max(0.0, end - time.monotonic()))
            if needs.columns
            else FoundRows({}, {}, {})
        )
        return busy.run(compute)
    except (duckdb.InterruptException, TimeoutError):
        raise TimeoutError(took) from None
    except duckdb.Error as error:
        if busy.is_over:  # in some of its steps an interrupt is told as another error
            raise TimeoutError(took) from None
        lines = takewhile(
            lambda line: line and not line.startswith("LINE "), str(error).splitlines()
        )
        raise QueryError(" ".join(line.strip() for line in lines)) from None
    finally:
        busy.close()


def _connect(duckdb: Any, limits: Limits) -> Any:
    settings = {
        "temp_directory": "",
        "python_enable_replacements": "false",  # variables of Python as tables
        "autoinstall_known_extensions": "false",
        "max_temp_directory_size": "0MB",
        "memory_limit": limits.memory,
        "threads": str(limits.threads),
    }
    database = duckdb.connect(":memory:", config=settings)
    for name in ("secret", "extension", "home"):  # answers and errors name them
        database.execute(f"SET {name}_directory = '/nonexistent'")
    # files, the network, ATTACH, INSTALL, COPY; as a setting of `connect`, duckdb would note paths
    # of this program's folder as allowed
    database.execute("SET enable_external_access = false; SET TimeZone = 'UTC'")
    return database


def _only_statement(duckdb: Any, database: Any, sql: str) -> tuple[str, str]:
    """Return the statement and the text to EXPLAIN."""
    statements = database.extract_statements(sql)
    if not statements:
        raise QueryError("the query is empty")
    if len(statements) > 1:
        raise QueryError(f"a query is one statement, and these are {len(statements)}")
    [statement] = statements
    if statement.type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise QueryError(f"{_ONLY} {statement.type.name}")
    text = str(statement.query)
    explained = statement.type == duckdb.StatementType.EXPLAIN
    planned = _EXPLAIN.sub("", text, count=1) if explained else text
    _check_calls(database, planned)
    return text, planned


def _check_calls(database: Any, text: str) -> None:
    """Refuse what does more than to read, as duckdb's parser has it: nothing has been bound yet.

    Functions in the place of a table may write settings and files, run other statements, or take
    addresses of memory (``arrow_scan``): only those that are known to read may stand there.
    """
    [(error, tables, scalars)] = database.execute(_CALLED, [text]).fetchall()
    if error is not None:
        raise QueryError(f"{_ONLY} such statement: {error}")
    wrong = [name for name in tables if not _READS.fullmatch(name.lower())]
    wrong += [name for name in scalars if name.lower() == "write_log"]
    if wrong:
        raise QueryError(f"a query only reads, and {wrong[0]}() may do more")


def _make_tables(database: Any, schema: Schema) -> None:
    database.execute(
        "; ".join(
            f'CREATE TABLE "{table}" ({as_columns(columns)})' for table, columns in schema.items()
        )
    )


def _insert(database: Any, name: str, table: Any) -> None:
    database.register("collected", table)
    database.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM collected')
    database.unregister("collected")


def as_columns(columns: Mapping[str, str]) -> str:
    """Columns as ``CREATE TABLE`` takes them."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def _needs(database: Any, text: str, source: TableSource) -> Needs:
    """The tables and columns of a question, by duckdb's own plan: it knows joins, stars and views.

    Only what could depend on the tables being empty still is kept from it.
    """
    [(known,)] = database.execute("SELECT string_agg(name) FROM duckdb_optimizers()").fetchall()
    wanted = ("unused_columns", "filter_pushdown", "expression_rewriter", "cte_inlining")
    others = ",".join(name for name in known.split(",") if name not in wanted)
    database.execute(f"SET disabled_optimizers = '{others}'")
    [(_, plan)] = database.execute(f"EXPLAIN (FORMAT JSON) {text}").fetchall()
    columns: dict[str, tuple[str, ...]] = {}
    ranges: list[tuple[int, float]] = []
    nodes = json.loads(plan)
    for info in _scans(nodes):
        table = info["Table"].rpartition(".")[2].strip('"')
        if table not in source.schema:  # of the catalog
            continue
        filters = _texts(info.get("Filters"))
        every = source.schema[table]
        projected = _texts(info.get("Projections") or None)
        # beside a CTE that is kept, a scan that says nothing reads all
        if not projected and _has_cte(nodes):
            projected = tuple(every)
        read = {
            *projected,
            *(word for text in filters for word in re.findall(r"\w+", text)),
            *columns.get(table, ()),
        }
        # count(*) counts one
        columns[table] = tuple(name for name in every if name in read) or (next(iter(every)),)
        if table in source.events:
            ranges.append(_range(filters))
    since = min((low for low, _ in ranges), default=0)
    until = max((high for _, high in ranges), default=math.inf)
    return Needs(columns, since or None, int(until) if until < math.inf else None)


def _scans(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Iterate over the scans of a plan, one per table that it reads."""
    for node in nodes:
        info = node.get("extra_info", {})
        if "Table" in info:
            yield info
        yield from _scans(node.get("children", ()))


def _has_cte(nodes: Sequence[Mapping[str, Any]]) -> bool:
    return any(node.get("name") == "CTE" or _has_cte(node.get("children", ())) for node in nodes)


def _texts(info: str | Sequence[str] | None) -> Sequence[str]:
    return [info] if isinstance(info, str) else info or []


def _range(filters: Sequence[str]) -> tuple[int, float]:
    """The times before and after which a scan reads nothing.

    They are 0 and infinite where that can't be told.
    """
    parts = [
        part
        for text in filters
        if " OR " not in text and "'" not in text
        for part in text.split(" AND ")
    ]
    lows = [int(match[1]) for part in parts if (match := _SINCE.fullmatch(part))]
    highs = [int(match[1]) for part in parts if (match := _UNTIL.fullmatch(part))]
    return max(lows, default=0), min(highs, default=math.inf)


def _rows(database: Any, names: Sequence[str], types: Sequence[Any]) -> list[dict[str, Any]]:
    """The answer in values that JSON has.

    Integers of any size, and NULL for infinities and NaN.
    """
    kinds = [str(kind) for kind in types]
    casts = ", ".join(_cast(quoted(name), kind) for name, kind in zip(names, kinds, strict=True))
    rows = database.execute(f"SELECT {casts} FROM {_ANSWER}").fetchall()
    nested = [name for name, kind in zip(names, kinds, strict=True) if _NESTED.fullmatch(kind)]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    for row in found if nested else ():
        row.update(
            {
                name: json.loads(row[name], parse_constant=_not_finite)
                for name in nested
                if row[name] is not None
            }
        )
    return found


def _not_finite(text: str) -> None:
    """NaN and Infinity, which JSON has not."""


def _cast(column: str, kind: str) -> str:
    if _AS_THEY_ARE.fullmatch(kind):
        return column
    if kind in ("DOUBLE", "FLOAT"):
        return f"CASE WHEN isfinite({column}) THEN {column} END"
    if kind.startswith("DECIMAL"):
        return f"{column}::{'HUGEINT' if kind.endswith(',0)') else 'DOUBLE'}"
    return f"to_json({column})::VARCHAR" if _NESTED.fullmatch(kind) else f"{column}::VARCHAR"


class _Busy:
    """A database that is abandoned at its deadline, without waiting for its threads.

    Args:
        database: A connection.
        end: When that is, as `time.monotonic` counts.
    """

    def __init__(self, database: Any, end: float) -> None:
        self._database = database
        self._end = end
        self._left = False  # the thread is: it closes the database

    @property
    def is_over(self) -> bool:
        """Return whether its time is over."""
        return time.monotonic() >= self._end

    def run(self, function: Callable[[], T]) -> T:
        """Run a function that uses the database, and return its result.

        Raises:
            TimeoutError: It can't even be interrupted.
        """
        outcome: list[tuple[T | None, BaseException | None]] = []
        done = threading.Event()

        def work() -> None:
            try:
                outcome.append((function(), None))
            except BaseException as error:
                outcome.append((None, error))
            done.set()
            if self._left:
                self._database.close()

        threading.Thread(target=work, name="monarch-query", daemon=True).start()
        try:
            done.wait(min(max(0.0, self._end - time.monotonic()), threading.TIMEOUT_MAX))
        finally:  # after Ctrl-C, too
            given_up = time.monotonic() + _PATIENCE
            while not done.is_set() and time.monotonic() < given_up:
                self._database.interrupt()
                done.wait(_AGAIN)
            self._left = not done.is_set()
        if self._left:
            raise TimeoutError
        result, error = outcome.pop()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # it is one where there is no error

    def close(self) -> None:
        """Close the database, as soon as that can be."""
        if not self._left:
            self._database.close()
