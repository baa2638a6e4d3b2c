"""SQL over tables that are collected for the question: what is collected, what is refused, and the
values of answers.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import PATIENCE, wait_until
from monarch.errors import QueryError
from monarch.telemetry.query import FoundRows, Limits, Needs, Schema, run
from monarch.telemetry.result import QueryResult

duckdb = pytest.importorskip("duckdb")
arro3 = pytest.importorskip("arro3.core")

BIG = 2**64 - 1

TYPES = {"UBIGINT": "uint64", "BIGINT": "int64", "VARCHAR": "utf8"}
ROWS: dict[str, dict[str, list[Any]]] = {
    "actors": {
        "id": [BIG, 2],
        "timestamp_us": [1, 2],
        "full_name": ["trainer[0]", "trainer[1]"],
        "rank": [0, 1],
    },
    "messages": {
        "id": [5, 6, 7],
        "timestamp_us": [10, 20, 30],
        "to_actor_id": [BIG, BIG, 2],
        "endpoint": ["a", "b", None],
    },
    "waits": {"actor_id": [2], "waits_for": ["trainer.step()"]},
}


class Made:
    """A source of rows that notes what it was asked for."""

    schema: Schema = {
        "actors": {
            "id": "UBIGINT",
            "timestamp_us": "BIGINT",
            "full_name": "VARCHAR",
            "rank": "UBIGINT",
        },
        "messages": {
            "id": "UBIGINT",
            "timestamp_us": "BIGINT",
            "to_actor_id": "UBIGINT",
            "endpoint": "VARCHAR",
        },
        "waits": {"actor_id": "UBIGINT", "waits_for": "VARCHAR"},
    }
    events = frozenset({"messages"})

    def __init__(
        self, silent: dict[str, str] | None = None, delay: threading.Event | None = None
    ) -> None:
        self.asked: list[Needs] = []
        self._silent = silent or {}
        self._delay = delay

    def collect(self, needs: Needs, seconds: float) -> FoundRows:
        self.asked.append(needs)
        if self._delay is not None and not self._delay.wait(seconds):
            raise TimeoutError
        tables = {name: self._table(name, columns) for name, columns in needs.columns.items()}
        return FoundRows(tables, self._silent, {"messages": 12} if self._silent else {})

    def _table(self, name: str, columns: Sequence[str]) -> Any:
        fields = [
            arro3.Field(
                column, getattr(arro3.DataType, TYPES[self.schema[name][column]])(), nullable=True
            )
            for column in columns
        ]
        arrays = [arro3.Array(ROWS[name][field.name], type=field.type) for field in fields]
        return arro3.Table.from_arrays(arrays, schema=arro3.Schema(fields))


def asked(sql: str) -> Needs:
    source = Made()
    run(sql, source)
    [needs] = source.asked
    return needs


def rows(sql: str) -> list[dict[str, Any]]:
    return run(sql, Made()).rows


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT full_name FROM actors WHERE id > 5", {"actors": ("id", "full_name")}),
        ("SELECT count(*) FROM waits", {"waits": ("actor_id",)}),
        ("FROM Waits", {"waits": ("actor_id", "waits_for")}),
        ("SELECT waits FROM waits", {"waits": ("actor_id", "waits_for")}),
        ("SELECT COLUMNS('.*_id') FROM messages", {"messages": ("to_actor_id",)}),
        ("WITH late AS (SELECT endpoint FROM messages) SELECT * FROM late -- why", {"messages": ("endpoint",)}),
        (
            "SELECT full_name FROM actors a, messages m WHERE a.id = m.to_actor_id;",
            {"actors": ("id", "full_name"), "messages": ("to_actor_id",)},
        ),
        ("SELECT m.id FROM messages m NATURAL JOIN actors a", {"actors": ("id", "timestamp_us"), "messages": ("id", "timestamp_us")}),
        ("SELECT (SELECT max(rank) FROM actors WHERE id = actor_id) FROM waits", {"waits": ("actor_id",), "actors": ("id", "rank")}),
        ("SELECT id FROM actors WHERE full_name IS NULL", {"actors": ("id", "full_name")}),
        ("EXPLAIN ANALYZE SELECT id FROM messages", {"messages": ("id",)}),
        ("SELECT full_name AS explain FROM actors", {"actors": ("full_name",)}),
    ],
)  # fmt: skip
def test_a_query_collects_the_columns_that_it_reads(
    sql: str, columns: dict[str, tuple[str, ...]]
) -> None:
    assert asked(sql) == Needs(columns, None)


@pytest.mark.parametrize("how", ["", "MATERIALIZED"])
def test_what_is_joined_to_a_named_subquery_is_collected_whole_enough(how: str) -> None:
    needs = asked(
        f"WITH x AS {how} (SELECT id FROM actors) SELECT m.endpoint FROM x JOIN messages m ON"
        " m.to_actor_id = x.id"
    )
    assert {"endpoint", "to_actor_id"} <= set(needs.columns["messages"]) and needs.columns[
        "actors"
    ] == ("id",)


@pytest.mark.parametrize(
    ("sql", "since"),
    [
        ("SELECT id FROM messages WHERE timestamp_us >= 20", 20),
        ("SELECT id FROM messages WHERE timestamp_us BETWEEN 20 AND 40 AND endpoint = 'a'", 20),
        (
            (
                "SELECT m.id FROM messages m JOIN actors a ON a.id = to_actor_id WHERE"
                " m.timestamp_us > 10 + 10"
            ),
            20,
        ),
        ("SELECT id FROM messages WHERE timestamp_us > 20 OR endpoint = 'a'", None),
        ("SELECT id FROM messages WHERE timestamp_us < 20", None),
        ("SELECT id FROM messages WHERE timestamp_us > 20 UNION ALL SELECT id FROM messages", None),
        (
            (
                "SELECT id FROM messages WHERE timestamp_us > 20 UNION ALL SELECT id FROM messages"
                " WHERE timestamp_us > 7"
            ),
            7,
        ),
        ("SELECT id FROM actors WHERE timestamp_us > 20", None),
    ],
)
def test_a_time_range_is_collected_only_where_all_of_the_query_has_it(
    sql: str, since: int | None
) -> None:
    assert asked(sql).since_us == since


@pytest.mark.parametrize(
    ("sql", "until"),
    [
        ("SELECT id FROM messages WHERE timestamp_us <= 20", 20),
        ("SELECT id FROM messages WHERE timestamp_us BETWEEN 20 AND 40 AND endpoint = 'a'", 40),
        ("SELECT id FROM messages WHERE timestamp_us < 20 OR endpoint = 'a'", None),
        ("SELECT id FROM messages WHERE timestamp_us < 20 UNION ALL SELECT id FROM messages", None),
        (
            (
                "SELECT id FROM messages WHERE timestamp_us < 20 UNION ALL SELECT id FROM messages"
                " WHERE timestamp_us < 70"
            ),
            70,
        ),
    ],
)
def test_what_came_later_is_not_collected_where_nothing_of_the_query_wants_it(
    sql: str, until: int | None
) -> None:
    assert asked(sql).until_us == until


def test_a_time_range_from_now_on_backwards_is_collected() -> None:
    before = time.time_ns() // 1000
    since = asked(
        "SELECT id FROM messages WHERE timestamp_us > epoch_us(now()) - 60_000_000"
    ).since_us
    assert since is not None and before <= since + 60_000_000 <= time.time_ns() // 1000


@pytest.mark.parametrize(
    "sql", ["DESCRIBE actors", "SHOW TABLES", "SELECT 1", "FROM information_schema.tables"]
)
def test_what_reads_no_table_asks_no_process(sql: str) -> None:
    source = Made(silent={"h1": "lost"})
    answer = run(sql, source)
    assert answer.rows and source.asked == [] and answer.silent == {}


def test_answers_have_the_columns_in_the_order_of_the_query() -> None:
    answer = run("SELECT rank AS z, full_name AS a FROM actors ORDER BY rank DESC", Made())
    assert answer.columns == list(answer.rows[0]) == ["z", "a"]
    assert (
        answer["rows"] == answer.rows == [{"z": 1, "a": "trainer[1]"}, {"z": 0, "a": "trainer[0]"}]
    )


def test_columns_of_one_name_are_told_apart() -> None:
    [row] = rows(
        "SELECT a.id, m.id FROM actors a JOIN messages m ON m.to_actor_id = a.id WHERE m.id = 7"
    )
    assert list(row.values()) == [2, 7]


def test_ids_of_64_bits_and_their_sums_are_whole_numbers_in_json() -> None:
    answer = run("SELECT id, sum(id) OVER () AS total FROM actors WHERE rank = 0", Made())
    assert json.dumps(answer) == f'{{"rows": [{{"id": {BIG}, "total": {BIG}}}]}}'


def test_every_type_of_an_answer_has_a_value_in_json() -> None:
    [row] = rows(
        "SELECT 1.5 AS d, 'nan'::DOUBLE AS nan, to_timestamp(3) AS t, DATE '2026-03-01' AS day, [1,"
        " 2] AS list, {'a': {'b': NULL}} AS struct, map {'k': 1} AS m, INTERVAL 3 SECONDS AS i,"
        " NULL AS n, true AS yes, 'ü' AS s, 7::DECIMAL(9, 0) AS w"
    )
    assert json.loads(json.dumps(row, allow_nan=False)) == {
        "d": 1.5, "nan": None, "t": "1970-01-01 00:00:03+00", "day": "2026-03-01", "list": [1, 2], "struct": {"a": {"b": None}},
        "m": {"k": 1}, "i": "00:00:03", "n": None, "yes": True, "s": "ü", "w": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("", "the query is empty"),
        ("-- nothing", "the query is empty"),
        ("SELECT 1; SELECT 2", "a query is one statement, and these are 2"),
        ("INSERT INTO actors VALUES (1, 1, 'a', 1)", "a query only reads: .*, and no INSERT"),
        ("CREATE TABLE x (a INT)", "a query only reads: .*, and no CREATE"),
        ("SET threads = 64", "a query only reads: .*, and no SET"),
        ("ATTACH '/tmp/x.db'", "a query only reads: .*, and no ATTACH"),
        ("COPY actors TO '/tmp/x'", "a query only reads: .*, and no COPY"),
        ("INSTALL httpfs", "a query only reads: .*, and no LOAD"),
        ("SELECT * FROM '/etc/passwd'", "Table with name /etc/passwd does not exist"),
        ("SELECT * FROM read_text('/etc/passwd')", r"only reads, and read_text\(\) may do more"),
        ("SELECT (FROM glob('/*'))", r"only reads, and glob\(\) may do more"),
        (
            "EXPLAIN ANALYZE COPY actors TO '/tmp/x'",
            "a query only reads: .*, and no such statement",
        ),
        ("FROM enable_logging(storage='file')", r"enable_logging\(\) may do more"),
        ("EXPLAIN FROM system.main.ENABLE_LOGGING()", r"enable_logging\(\) may do more"),
        ("CALL enable_logging()", "a query only reads: .*, and no CALL"),
        ("PRAGMA enable_profiling", "a query only reads: .*, and no PRAGMA"),
        ("WITH a AS (FROM arrow_scan(1, 2, 3)) FROM a", r"arrow_scan\(\) may do more"),
        ("DESCRIBE FROM query('FROM checkpoint()')", r"query\(\) may do more"),
        ("FROM json_execute_serialized_sql('')", r"_serialized_sql\(\) may do more"),
        ("SELECT count(*) FILTER (write_log('x')) FROM actors", r"write_log\(\) may do more"),
        ("SELECT * FROM source", "Table with name source does not exist"),
        ("SELECT nme FROM actors", 'Referenced column "nme" not found.*'),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT 'x'::INTEGER", "Could not convert string 'x' to INT32"),
    ],
)
def test_what_does_not_read_tables_is_refused_in_one_line(sql: str, reason: str) -> None:
    source = Made()  # a variable that is no table
    with pytest.raises(QueryError, match=reason) as refused:
        run(sql, source)
    assert "\n" not in str(refused.value)


def test_no_question_tells_a_path_of_this_user_or_a_variable_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any setting that there is, and any function that says how the database is; in errors
    as well.
    """
    (home := tmp_path / "the-home").mkdir()
    (here := tmp_path / "the-folder").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    settings = [row["name"] for row in rows("SELECT name FROM duckdb_settings()")]
    readers = [
        row["name"]
        for row in rows("SELECT DISTINCT function_name AS name FROM duckdb_functions()")
        if re.fullmatch(r"duckdb_\w+|pragma_\w+", row["name"])
    ]
    told = {
        sql: said(sql)
        for sql in (
            "SELECT " + ", ".join(f"current_setting('{name}')" for name in settings),
            *(f"FROM {name}()" for name in readers),
            "FROM pg_catalog.pg_settings",
            "PRAGMA database_list",
            "SELECT getenv('HOME')",
            "SELECT getvariable('HOME')",
            "SELECT st_point(1, 2)",  # of an extension, which would be below the home
            "FROM '~'",
        )
    }
    assert len(settings) > 100 and len(readers) > 20
    secrets = (str(tmp_path), str(Path(__file__).parents[2]))
    assert {sql: text for sql, text in told.items() if any(word in text for word in secrets)} == {}


def said(sql: str) -> str:
    try:
        return str(rows(sql))
    except QueryError as error:
        return str(error)


def test_an_answer_over_the_limit_of_rows_is_refused_with_the_limit_named() -> None:
    with pytest.raises(QueryError, match="more than 1,000,000 rows, which is the limit"):
        rows("SELECT * FROM range(100_000_000)")
    assert len(run("SELECT * FROM range(10)", Made(), Limits(rows=10)).rows) == 10


def test_an_answer_over_the_limit_of_memory_is_refused_with_the_limit_named() -> None:
    with pytest.raises(QueryError, match=r"Out of Memory.*/64\.0 MiB used"):
        run("SELECT list(random()) FROM range(20_000_000)", Made(), Limits(memory="64MiB"))


ENDLESS = (
    "SELECT count(*) FROM range(10_000_000) a, range(10_000_000) b WHERE (a.range * b.range) %"
    " 7 = 3"
)


def test_a_query_ends_when_its_time_is_over() -> None:
    with pytest.raises(TimeoutError, match=r"longer than 0\.2 s"):
        run(ENDLESS, Made(), Limits(seconds=0.2))
    with pytest.raises(TimeoutError, match=r"longer than 0\.2 s"):  # of collecting
        run("FROM actors", Made(delay=threading.Event()), Limits(seconds=0.2))


STUBBORN = (
    "SELECT levenshtein(repeat('x', 14_000), repeat('y', 14_000 + min(rank)::INT)) FROM actors"
)


def test_a_query_ends_in_time_also_where_one_function_takes_long() -> None:
    def working() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "monarch-query"]

    while not working():  # on a busy machine its time may be over before the function begins
        with pytest.raises(TimeoutError, match=r"longer than 0\.2 s"):
            run(STUBBORN, Made(), Limits(seconds=0.2))
    [left] = working()  # duckdb can't interrupt it, and it was not waited for
    assert rows("SELECT min(rank) AS rank FROM actors") == [{"rank": 0}]
    wait_until(lambda: not left.is_alive(), what="the end of the function")
    assert working() == []


def test_a_program_ends_while_a_query_still_computes() -> None:
    program = """if True:
        import threading
        from monarch.telemetry.query import Limits, run

        class Nothing:
            schema, events = {"t": {"a": "BIGINT"}}, frozenset()

        left = []
        while not left:  # on a busy machine its time may be over before the function begins
            try:
                run("SELECT levenshtein(repeat('x', 200_000), repeat('y', 200_000))", Nothing(), Limits(seconds=0.2))
            except TimeoutError:
                left = [thread.name for thread in threading.enumerate()][1:]
        print(left)
        """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.stdout, done.stderr, done.returncode) == ("['monarch-query']\n", "", 0)


def test_ctrl_c_ends_a_query() -> None:
    class Interrupting(Made):
        def collect(self, needs: Needs, seconds: float) -> FoundRows:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            return super().collect(needs, seconds)

    with pytest.raises(KeyboardInterrupt):
        run(
            ENDLESS + " AND a.range >= (SELECT min(rank) FROM actors)",
            Interrupting(),
            Limits(seconds=60),
        )


def test_an_answer_says_who_is_missing() -> None:
    answer = run("SELECT id FROM messages", Made(silent={"h1": "lost"}))
    assert answer.silent == {"h1": "lost"} and answer.left_out == {"messages": 12}
    assert repr(answer).splitlines()[-2:] == [
        "h1 did not answer: lost",
        "12 rows of messages were left out: too many",
    ]


def test_an_answer_is_shown_as_a_table_that_does_not_move_the_cursor() -> None:
    answer = run("SELECT 'a\x1b[2J' || chr(10) AS text, NULL AS none, [1, 2] AS list", Made())
    assert repr(answer).splitlines() == [
        "text       | none | list",
        "-----------+------+------",
        r"a\x1b[2J\n | NULL | [1,2]",
        "(1 row)",
    ]


def test_an_answer_is_arrow_as_well() -> None:
    answer = run("SELECT id, full_name FROM actors ORDER BY rank", Made())
    assert duckdb.from_arrow(answer.arrow()).fetchall() == [(BIG, "trainer[0]"), (2, "trainer[1]")]


def test_an_answer_can_be_sent_without_its_arrow_table() -> None:
    answer = run("SELECT id FROM messages ORDER BY id", Made(silent={"h1": "lost"}))
    copy: QueryResult = pickle.loads(pickle.dumps(answer))
    assert (copy, copy.columns, copy.silent) == (answer, ["id"], {"h1": "lost"})
    with pytest.raises(RuntimeError, match="where the query was made"):
        copy.arrow()


def test_without_the_libraries_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        ImportError, match=r"queries need duckdb: pip install 'pymonarch\[telemetry\]'"
    ):
        rows("SELECT 1")


def test_a_text_in_a_query_is_no_time_range_and_lists_have_no_nan() -> None:
    assert asked("FROM messages WHERE endpoint = 'a AND timestamp_us>=25 AND b'").since_us is None
    assert rows("SELECT ['nan'::DOUBLE, 1.5] AS list") == [{"list": [None, 1.5]}]


def test_where_an_answer_has_no_room_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(answer: Any) -> None:  # as arro3 says it
        raise Exception("C Data interface error: Out of Memory Error: no\n\nPossible solutions")

    narrow = SimpleNamespace(Table=SimpleNamespace(from_arrow=no_room))
    found = {"duckdb": duckdb, "arro3.core": narrow}
    monkeypatch.setattr("monarch.telemetry.query.library", found.__getitem__)
    with pytest.raises(QueryError, match="^C Data interface error: Out of Memory Error: no$"):
        run("SELECT 1", Made())


def test_half_a_character_in_a_query_is_a_question_mark() -> None:
    assert rows("SELECT '\ud800' AS half") == [{"half": "?"}]
