"""Names and texts of others, where they are printed: what a terminal obeys is not in them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._patterns.attach_progress import progress_line
from monarch._words import TameStream, bare, named, tame
from monarch.job.base import waiting
from monarch.programs import Program
from monarch.spmd.launcher import Outcome, explain
from monarch.spmd.options import Options
from monarch.spmd.rank import Exit
from monarch.stacks.report import Stacks
from monarch.tools import cli, programs

ORDERS = "\x1b]52;c;b3duZWQ=\x07\x1b[2J\x9b2J\u202eback\u200f\u061c\x08\r"
NAME = f"name{ORDERS}\nFORGED"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text(st.sampled_from("a\x1b[]2Jm;0\x07\x9b\x9c\u202e\u200f\u2066\n\r\t\x08\ud800é")))
def test_a_name_is_one_line_of_text_that_says_what_it_was(name: str) -> None:
    shown = named(name)
    assert not OBEYED.search(shown) and "\n" not in shown and "\t" not in shown
    assert shown.encode("latin-1").decode("unicode_escape") == name


def test_a_name_that_can_be_shown_stays_as_it_is() -> None:
    for name in ("train.py", "é漢 → \U0001f600", "\U0001f468\u200d\U0001f469", "non\xa0breaking"):
        assert named(name) == tame(name, False) == name


def test_a_bar_may_move_in_its_lines_and_no_further() -> None:
    bar = "\r 10 %|#  |\x1b[A\x1b[2K\x1b[31mred\x08"
    assert tame(bar, True, moves=True) == bar
    assert tame("a\x1b[H\x1b[2J\x1b]0;t\x07\x1b[6n\x1b[?25l\x9b2K\u202eb", True, moves=True) == "ab"


def test_a_stream_writes_what_its_encoding_has_not_as_python_does() -> None:
    raw = io.BytesIO()
    stream = TameStream(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    print("é\udc80\x1b[1mbold\x1b[0m\x1b[2J", file=stream)
    assert raw.getvalue() == b"\\xe9\\udc80\x1b[1mbold\x1b[0m\n"
    assert bare(stream) is stream.bare and bare(sys.stdout) is sys.stdout
    assert stream.encoding == "ascii"


def test_the_error_of_a_script_orders_no_terminal_in_the_report_of_a_run() -> None:
    error = f"Traceback (most recent call last):\nValueError: \x1b[31mred\x1b[0m{ORDERS}"
    said = explain(Outcome((Exit(0, 0, f"host{ORDERS}", 1, 1, 0.0, error),)), Options("train.py"))
    assert "ValueError: \x1b[31mred\x1b[0m" in said
    assert not OBEYED.search(said.replace("\x1b[31m", "").replace("\x1b[0m", ""))


def test_a_table_of_programs_shows_their_names_in_its_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"pid": 1, "kind": "program", "since": 0.0, "command": NAME, "hosts": [NAME], "meshes": {NAME: 2}, "error": None}  # fmt: skip
    monkeypatch.setattr(programs, "find", lambda: [Program(1, NAME, 0.0, False, NAME, NAME)])
    monkeypatch.setattr(programs, "_row", lambda program: row)
    said = typed(["list"], capsys)
    assert said.count(named(NAME)) == 2 and "FORGED" not in said.split("\n")


def typed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        cli.main(arguments)
    said = "".join(capsys.readouterr())
    assert not OBEYED.search(re.sub("\x1b\\[[0-9;]*m", "", said))
    return said


@pytest.mark.parametrize(
    "command",
    [word for modules in cli._GROUPS.values() for words in modules.values() for word in words],
)
def test_what_a_command_says_and_raises_is_text(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*first: str) -> Callable[..., None]:
        def run(**options: Any) -> None:
            import logging

            logging.getLogger("monarch").warning("a note of %s", NAME)
            if (
                command not in cli._PASS_ON
            ):  # which show what programs print, see test_logs_terminal
                print(NAME, "on stdout")
                print(NAME, "on stderr", file=sys.stderr)
            raise OSError(f"an error of {NAME}")

        return run

    caplog.set_level("WARNING")  # so that the one before comes back: a command logs from INFO on
    monkeypatch.setattr("logging.root.handlers", [])
    monkeypatch.setattr(cli, "commands", fails)
    said = typed([command], capsys)
    assert "a note of name" in said and "error: an error of name" in said
    assert "\nFORGED" not in said.replace("\nFORGED on std", "")


def test_stacks_are_lines_with_any_names_of_threads_files_and_hosts() -> None:
    found = Stacks([], {NAME: NAME})
    assert str(found) == f"host {named(NAME)} did not answer: {named(NAME)}"


def test_who_waits_shows_names_and_moves_the_cursor_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "_LIVE_AFTER", 0.0)
    monkeypatch.setattr(sys, "stderr", TameStream(screen := Screen()))
    shown = waiting.Waiting("a job")
    shown.show(NAME, [(NAME, "waits"), ("b", NAME)])
    shown.show("again")
    shown.__exit__()
    left = re.sub("\x1b\\[(K|J|2A)|\r", "", screen.getvalue())
    assert left != screen.getvalue() and not OBEYED.search(left)
    assert "\nFORGED" not in left
    assert progress_line([NAME], 1, 3.0, 60.0).startswith("waiting for 1 of 1 hosts: name\\x1b]52")
