"""How lines of ranks look on a terminal: text in, text out."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._words import tame
from monarch.logs.line import LogEntry, LogLine, alone
from monarch.logs.terminal import TerminalStyle, coloured


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    def isatty(self) -> bool:
        raise RuntimeError("this is none of yours")


def entry(text: str, rank: int = 3, level: int = 0) -> LogEntry:
    return alone(LogLine(0.0, "stdout", level, text, "host", "trainers", rank, f"gpus={rank}"))


@pytest.mark.parametrize(
    ("file", "variables", "expected"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (Broken(), {}, False),
        (object(), {}, False),
    ],
)
def test_colours_are_for_terminals_unless_the_environment_says_otherwise(
    file: io.StringIO, variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert coloured(file) is expected


@pytest.mark.parametrize(
    ("hostile", "left"),
    [
        ("a\x1b[2Jb", "ab"),  # clear the screen
        ("a\x1b[10;10Hb\x1b[3Ab\x1b[K", "abb"),  # move the cursor, clear the line
        ("\x1b[?25l\x1b[?1049hx\x1bc", "x"),  # hide the cursor, another screen, reset
        ("\x1b]0;title\x07x\x1b]52;c;Y2xpcA==\x1b\\y", "xy"),  # title, clipboard
        ("\x1bPq#0\x1b\\x\x1b(0y", "xy"),  # graphics, another character set
        ("\x9b2Jx\x9d0;title\x9cy", "xy"),  # the same in one character
        ("a\x08\x08\x07\x00b\x7f", "ab"),
        ("\x1b]0;never ends", ""),
        ("\x1b", ""),
        ("ä\tb → 50 %", "ä\tb → 50 %"),
    ],
)
@pytest.mark.parametrize("colours", [True, False])
def test_what_moves_the_cursor_or_clears_the_screen_is_left_out(
    hostile: str, left: str, colours: bool
) -> None:
    assert tame(hostile, colours) == left


@given(
    st.lists(
        st.sampled_from(
            [
                "\x1b",
                "[",
                "]",
                "0;1",
                "m",
                "2J",
                "H",
                "\x9b",
                "\x07",
                "\\",
                "P",
                "(",
                "a",
                "ä",
                "\r",
                "\t",
                "?25l",
            ]
        )
    ).map("".join)
)
def test_of_any_output_only_colours_are_left_that_a_terminal_obeys(text: str) -> None:
    for colours in (True, False):
        left = re.sub(r"\x1b\[[0-9;:]*m" if colours else "$^", "", tame(text, colours))
        assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", left), repr(left)


def test_colours_of_ranks_stay_where_colours_are_shown_and_end_with_their_line() -> None:
    assert tame("\x1b[31;1mred", True) == "\x1b[31;1mred\x1b[0m"
    assert tame("\x1b[31;1mred", False) == "red"


def test_the_prefix_is_coloured_by_rank_and_the_text_by_level() -> None:
    look = TerminalStyle(colours=True, screen=True)
    assert look.render(entry("hello", 0)) == "\x1b[36m[trainers 0] \x1b[0mhello\n"
    assert look.render(entry("hello", 1)) == "\x1b[32m[trainers 1] \x1b[0mhello\n"
    assert look.render(entry("late", 0, 30)) == "\x1b[36m[trainers 0] \x1b[0m\x1b[33mlate\x1b[0m\n"
    assert (
        look.render(entry("two\nlines", 0, 40))
        == "\x1b[36m[trainers 0] \x1b[0m\x1b[31mtwo\x1b[0m\n\x1b[36m[trainers 0]"
        " \x1b[0m\x1b[31mlines\x1b[0m\n"
    )


@pytest.mark.parametrize("screen", [False, True])
def test_a_name_of_a_mesh_neither_splits_a_line_nor_moves_the_cursor(screen: bool) -> None:
    strange = entry("text")
    strange = strange._replace(line=strange.line._replace(mesh="a\nb\x1b[2J"))
    assert TerminalStyle(False, screen).render(strange) == "[a\\nb\\x1b[2J 3] text\n"


def test_files_get_plain_text_as_it_was_printed() -> None:
    look = TerminalStyle(colours=False, screen=False)
    assert look.render(entry("late", 0, 30)) == "[trainers 0] late\n"
    assert (
        look.render(entry("\x1b[31mred\x1b[0m\nagain"))
        == "[trainers 3] \x1b[31mred\x1b[0m\n[trainers 3] again\n"
    )


def test_an_entry_of_several_ranks_says_which_and_how_often() -> None:
    look = TerminalStyle(colours=False, screen=False)
    both = LogEntry(entry("step 1").line, "step 1..2", 2, {0: "gpus=0", 1: "gpus=1"})
    assert look.render(both) == "[trainers gpus 0-1] step 1..2\n"
    assert look.render(both._replace(lines=9)) == "[trainers gpus 0-1] step 1..2 (9 lines)\n"


def test_without_a_mesh_to_name_only_several_ranks_are_named() -> None:
    look = TerminalStyle(colours=False, screen=False)
    line = entry("x").line._replace(mesh="")
    assert look.render(alone(line)) == "x\n"
    assert look.render(LogEntry(line, "x", 2, {0: "gpus=0", 1: "gpus=1"})) == "[gpus 0-1] x\n"
