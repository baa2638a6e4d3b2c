"""Commands ask a person at a terminal which of several programs is meant."""

from __future__ import annotations

import io
import sys

import pytest

from monarch.programs import Program
from monarch.tools import found
from monarch.tools.json_option import print_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


PROGRAMS = [Program(pid, f"train{pid}.py", 0.0, False, f"host{pid}") for pid in (101, 102)]


@pytest.mark.parametrize("typed", ["2\n", "0\n3\n2\n", "second\n2\n"])
def test_a_number_at_the_prompt_picks_a_program_and_others_are_asked_for_again(
    typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "find", lambda: PROGRAMS)
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    assert found.found(None) == PROGRAMS[1]
    assert "  2  102 (train102.py)" in shown.getvalue()
    assert shown.getvalue().count("Which program, 1 to 2") == typed.count("\n")


def test_lines_of_a_report_have_styles_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for file, expected in (
        (Terminal(), "\x1b[1;31mIt is stuck.\x1b[0m\nrank 3\n"),
        (io.StringIO(), "It is stuck.\nrank 3\n"),
    ):
        monkeypatch.setattr(sys, "stdout", file)
        print_lines([("bad", "It is stuck."), ("plain", "rank 3")])
        assert file.getvalue() == expected
