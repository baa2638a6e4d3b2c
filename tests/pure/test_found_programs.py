"""How commands find what they work on: one argument for a program, a job, or the file of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

typer = pytest.importorskip("typer")

from monarch.errors import JobError  # noqa: E402
from monarch.job import current  # noqa: E402
from monarch.programs import Program  # noqa: E402
from monarch.tools import found, query  # noqa: E402

RUNNING = [
    Program(11, "monarch worker", 1.0, True, "w", "/elsewhere"),
    Program(22, "python train.py", 2.0, False, "a", "/elsewhere"),
    Program(33, "python eval.py", 3.0, False, "b", "/elsewhere"),
]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(found, "find", lambda: RUNNING)


def at_terminal(monkeypatch: pytest.MonkeyPatch, typed: str) -> list[str]:
    """Have a person choose; returns what is shown."""
    said: list[str] = []
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "echo", lambda text, **_: said.append(text))
    monkeypatch.setattr(typer, "prompt", lambda text, **more: more["type"](typed))
    return said


def test_a_program_is_meant_by_its_process_id_as_argument_or_option() -> None:
    assert found.found("22") == found.found(None, "22") == RUNNING[1]
    with pytest.raises(ValueError, match="44 is no Monarch program of yours"):
        found.found("44")
    with pytest.raises(ValueError, match="give either PROGRAM or --program, not both '22' and '3'"):
        found.found("22", "3")


def test_a_file_is_the_run_that_is_meant_whether_it_is_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    for name in ("run.duckdb", "kept", "folder/run"):
        assert found.found(name) == Path(name)
    with pytest.raises(ValueError, match=r"needs a program that runs, and run\.duckdb is a file"):
        found.reach("run.duckdb")


def test_a_word_that_is_neither_is_a_job_that_is_looked_for() -> None:
    with pytest.raises(
        JobError, match="there is no job 'training' here, nor another one: `monarch"
    ):
        found.found("training")


def test_of_several_programs_a_terminal_asks_and_a_script_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match=r"2 programs run here, say which:\n  22 .*\n  33 \("):
        found.found(None)
    said = at_terminal(monkeypatch, "2")
    assert found.found(None) == RUNNING[2]
    assert said == ["  1  22 (python train.py)  /elsewhere", "  2  33 (python eval.py)  /elsewhere"]


def test_the_one_of_this_folder_is_meant_without_a_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = RUNNING[1]._replace(folder=str(tmp_path))
    monkeypatch.setattr(found, "find", lambda: [mine, RUNNING[2]])
    said = at_terminal(monkeypatch, "2")
    assert found.found(None) == mine and said == []


@pytest.mark.parametrize(
    ("words", "program", "rest"),
    [
        (None, None, []),
        (["SELECT 1"], None, ["SELECT 1"]),
        (["attach", "trainer", "3"], None, ["attach", "trainer", "3"]),
        (["22"], "22", []),
        (["small"], "small", []),
        (["run.duckdb", "SELECT 1"], "run.duckdb", ["SELECT 1"]),
        (["22", "attach", "trainer", "3"], "22", ["attach", "trainer", "3"]),
    ],
)
def test_before_a_statement_or_a_command_may_stand_its_program(
    words: list[str] | None, program: str | None, rest: list[str]
) -> None:
    current.make_context("small")
    assert found.split(words) == (program, rest)


def test_a_statement_without_quotes_is_refused() -> None:
    with pytest.raises(ValueError, match="one statement, in quotes: 'SELECT' is neither"):
        query._statement(["SELECT", "*", "FROM", "procs"], None)
