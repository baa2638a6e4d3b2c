"""``monarch query``: what it takes, what it prints, and that each failure is one line.

What it asks is in tests/procs.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")
testing = pytest.importorskip("typer.testing")

from monarch.admin.runs import _files  # noqa: E402
from monarch.telemetry.query import FoundRows, Needs  # noqa: E402  # where there is typer
from monarch.telemetry.run_file import is_run, write_run  # noqa: E402
from monarch.tools.cli import commands  # noqa: E402


class Nothing:
    """A program of which no process answers."""

    def collect(self, needs: Needs, seconds: float) -> FoundRows:
        return FoundRows({}, {"h1": "lost"}, {})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.duckdb"
    # a source is enough
    write_run(path, Nothing(), {"program": "train.py"}, 1.0)  # type: ignore[arg-type]
    return path


@pytest.fixture
def file(written: Path, tmp_path: Path) -> str:
    """A copy, which a test may change."""
    return shutil.copy(str(written), str(tmp_path))


def query(*args: str, stdin: str = "") -> Any:
    return testing.CliRunner().invoke(commands("query"), ["query", *args], input=stdin)


ROWS = "SELECT 2 AS z, 'ü' AS a UNION ALL SELECT NULL, 'b'"


def test_each_format_prints_the_columns_in_the_order_of_the_query(file: str) -> None:
    asked = query(ROWS, "--run", file)
    assert asked.stdout.splitlines() == ["z    | a", "-----+--", "2    | ü", "NULL | b", "(2 rows)"]
    asked = query(ROWS, "--run", file, "--format", "json")
    assert json.loads(asked.stdout) == {"rows": [{"z": 2, "a": "ü"}, {"z": None, "a": "b"}]}
    assert asked.stdout.index('"z"') < asked.stdout.index('"a"')
    asked = query(ROWS, "--run", file, "--format", "jsonl")
    assert [json.loads(line) for line in asked.stdout.splitlines()] == [
        {"z": 2, "a": "ü"},
        {"z": None, "a": "b"},
    ]


def test_no_rows_are_said_in_a_table_and_nothing_in_lines_of_json(file: str) -> None:
    empty = "SELECT 1 AS one WHERE false"
    assert query(empty, "--run", file).stdout == "(0 rows)\n"
    assert query(empty, "--run", file, "--format", "jsonl").stdout == ""


def test_the_statement_is_an_argument_or_a_file_or_comes_by_stdin(
    file: str, tmp_path: Path
) -> None:
    (tmp_path / "one.sql").write_text("-- one\nSELECT 1 AS one;\n")
    for asked in (
        query("SELECT 1 AS one", "--run", file),
        query("-f", str(tmp_path / "one.sql"), "--run", file),
        query("-", "--run", file, stdin="SELECT 1 AS one"),
        query("--run", file, stdin="SELECT 1 AS one"),
    ):
        assert asked.exit_code == 0 and asked.stdout.splitlines()[2:] == ["1", "(1 row)"], asked


def test_who_did_not_answer_is_said_on_stderr(file: str) -> None:
    asked = query("SELECT value FROM run WHERE name = 'program'", "--run", file)
    assert "train.py" in asked.stdout and "h1" not in asked.stdout
    assert asked.stderr == "h1 did not answer: lost\n"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["SELECT 1", "--run", "FILE", "-f", "x.sql"], "give either SQL or --file"),
        (["run.duckdb", "SELECT 1", "--run", "FILE"], "give either PROGRAM or --program"),
        (["SELECT 1", "--run", "nowhere.duckdb"], "no run is kept at nowhere"),
        (["SELECT 1", "-p", "me"], "there is no job 'me' here, nor another one: `monarch context ls` lists them"),
        (["", "--run", "FILE"], "the query is empty"),
        (["SELECT 1", "--run", "FILE", "--timeout", "10"], "duration must be a positive number followed by ms, s, m, or h"),
        (["SELECT 1", "--run", "FILE", "--timeout", "0s"], "duration must be a positive number followed by ms, s, m, or h"),
        (["SELEC 1", "--run", "FILE"], 'Parser Error: syntax error at or near "SELEC"'),
        (["SELECT * FROM range(100_000_000)", "--run", "FILE"], "the answer has more than 1,000,000 rows, which is the limit"),
        (["SELECT count(*) FROM range(10_000_000) a, range(10_000_000) b WHERE (a.range * b.range) % 7 = 3", "--run", "FILE",
          "--timeout", "100ms"], "the query took longer than 0.1 s"),
    ],
)  # fmt: skip
def test_each_failure_is_one_line_and_a_status(file: str, args: list[str], reason: str) -> None:
    failed = query(*(file if arg == "FILE" else arg for arg in args))
    misuse = reason.startswith(("give either", "duration must be"))
    assert failed.exit_code == 1 + misuse and failed.stdout == ""
    [line] = failed.stderr.splitlines()
    assert line.startswith(f"monarch query: {reason}")


def test_what_monarch_has_written_is_told_from_other_databases_without_a_lock(
    file: str, tmp_path: Path
) -> None:
    other, short = tmp_path / "other.duckdb", tmp_path / "short.duckdb"
    short.write_text("run")
    os.mkfifo(tmp_path / "pipe.duckdb")
    with duckdb.connect(str(other)) as mine, duckdb.connect(file):
        mine.execute("CREATE TABLE run (kind VARCHAR, name VARCHAR, value VARCHAR)")
        assert is_run(Path(file))
        assert not any(
            map(
                is_run, (other, short, tmp_path / "pipe.duckdb", tmp_path / "gone.duckdb", tmp_path)
            )
        )


def test_what_another_user_has_made_is_no_run_and_is_not_opened(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, loop = tmp_path / "link.duckdb", tmp_path / "loop.duckdb"
    link.symlink_to(file)
    loop.symlink_to(loop)
    assert not is_run(link) and not is_run(loop)
    listed = [each.path for each in _files(str(tmp_path))]
    assert listed == [Path(file)]
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)  # now it is another's
    assert not is_run(Path(file)) and not _files(str(tmp_path))


def test_other_tables_of_a_file_are_not_there(file: str) -> None:
    with duckdb.connect(file) as database:
        database.execute("CREATE TABLE secrets (word VARCHAR)")
    refused = query("SELECT * FROM secrets", "--run", file)
    assert refused.exit_code == 1 and "secrets does not exist" in refused.stderr
    assert (
        query("SELECT name FROM run WHERE value = 'train.py'", "--run", file).stdout.splitlines()[
            -1
        ]
        == "(1 row)"
    )


def test_a_database_with_another_table_of_that_name_is_none_of_a_run(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "mine.duckdb")) as database:
        database.execute("CREATE TABLE run (id INTEGER, name VARCHAR)")
    refused = query("SELECT * FROM run", "--run", str(tmp_path / "mine.duckdb"))
    assert refused.exit_code == 1 and "is a database, but not one of a run" in refused.stderr


ENDLESS = "FROM range(10_000_000_000) WHERE md5(range::VARCHAR) = 'x'"


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (f"CREATE VIEW waits AS SELECT range AS actor_id {ENDLESS}", "waits does not exist"),
        (
            "CREATE VIEW waits AS FROM enable_logging(storage='file', storage_path='/tmp/x')",
            "waits does not exist",
        ),
        (
            f"CREATE MACRO duckdb_columns() AS TABLE SELECT range {ENDLESS}",
            "waits does not exist",
        ),
    ],
)  # fmt: skip
def test_a_file_of_another_user_has_nothing_computed(file: str, made: str, refused: str) -> None:
    with duckdb.connect(file) as database:
        database.execute(made)
    asked = query("SELECT actor_id FROM waits", "--run", file, "--timeout", "60s")
    assert asked.exit_code == 1 and refused in asked.output, asked.output


def test_a_column_that_a_file_lacks_or_would_have_computed_is_empty(file: str) -> None:
    with duckdb.connect(file) as database:  # as of an older pymonarch, or of another user
        computed = "actor_id UBIGINT GENERATED ALWAYS AS (length(repeat('x', z)))"
        database.execute(f"CREATE TABLE waits (z BIGINT, {computed})")
        database.execute("INSERT INTO waits VALUES (5)")
    asked = query("SELECT actor_id, waits_for FROM waits", "--run", file, "--format", "jsonl")
    assert json.loads(asked.stdout) == {"actor_id": None, "waits_for": None}, asked.output


def test_a_file_of_another_user_has_no_more_rows_than_a_run_keeps(file: str) -> None:
    with duckdb.connect(file) as database:  # in which as many equal rows take no place
        database.execute("CREATE TABLE waits AS SELECT 1::UBIGINT AS actor_id FROM range(300_000)")
    asked = query("SELECT count(actor_id) AS n FROM waits", "--run", file, "--format", "jsonl")
    assert '{"n": 100000}' in asked.output
