"""What is typed at the debugger's prompt, and what it shows: without processes."""

from __future__ import annotations

import io
import socket
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import PATIENCE, wait_until
from monarch.debugger import notices, views
from monarch.debugger.commands import HELP, NAMES, DebuggerCommand, parse
from monarch.debugger.console import Terminal, _Input
from monarch.debugger.notices import due, news
from monarch.debugger.protocol import Row, StackLine, StopPlace, Who
from monarch.debugger.server import _Caller


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("l", DebuggerCommand("list")),
        ("  list ", DebuggerCommand("list")),
        ("attach trainer 3", DebuggerCommand("attach", "trainer", "3")),
        (
            "a trainer gpus=1,hosts=0 --take",
            DebuggerCommand("attach", "trainer", "gpus=1,hosts=0", flag=True),
        ),
        ("a trainer 3/2", DebuggerCommand("attach", "trainer", "3/2")),
        ("cast t-1 ranks(0:8:2) p x", DebuggerCommand("cast", "t-1", "0:8:2", "p x")),
        (
            "cast t ranks(gpus=(0,2),hosts=1) p f(x)",
            DebuggerCommand("cast", "t", "gpus=(0,2),hosts=1", "p f(x)"),
        ),
        ("b train.py:88", DebuggerCommand("break", file="train.py", line=88)),
        (
            "break a/train.py:8 if x > f(3) ranks(1,gpus=2)".replace("1,gpus=2", "gpus=(1,2)"),
            DebuggerCommand(
                "break", ranks="gpus=(1,2)", text="x > f(3)", file="a/train.py", line=8
            ),
        ),
        ("clear train.py:88", DebuggerCommand("clear", file="train.py", line=88)),
        ("interrupt t", DebuggerCommand("interrupt", "t")),
        ("i t ranks(0:2)", DebuggerCommand("interrupt", "t", "0:2")),
        ("w", DebuggerCommand("where", flag=True)),
        ("where --all", DebuggerCommand("where", flag=True)),
        ("", None),
        ("   ", None),
    ],
)
def test_a_line_is_read_as_a_command(text: str, wanted: DebuggerCommand | None) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["lst", "list all", "attach", "attach t", "attach t x", "attach t 1 2", "cast t 3 n", "cast t ranks(3)", "cast t ranks(x) n",
     "break train.py", "break train.py:x", "break train.py:3 if", "clear", "clear a.py:3 if x", "interrupt", "interrupt t x",
     "where -a"],
)  # fmt: skip
def test_what_is_no_command_says_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)


def test_help_has_every_command() -> None:
    assert all(name in HELP for name in NAMES)


def row(rank: int, line: int = 5, name: str = "t", **changes: Any) -> Row:
    place = StopPlace(
        "breakpoint()",
        (
            StackLine("main.py", 1, "main", "step()"),
            StackLine("train.py", line, "step", "breakpoint()"),
        ),
    )
    who = Who(name, rank, {"gpus": rank}, "node1", 100 + rank, 99)
    return Row(rank, who, str(rank), place, True, 65.0, "")._replace(**changes)


def test_the_table_is_a_grid_as_wide_as_what_is_in_it() -> None:
    lines = views.table([row(0), row(10, name="longer-name")]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split("|")[1:7] == [f" {text} " for text in (
        "Actor Name ", "Rank", "Coords ", "Hostname", "Function", "Line No.",
    )]  # fmt: skip
    assert "65 s" in lines[3]


def test_equal_stacks_are_grouped_and_the_largest_group_comes_first() -> None:
    text = views.stacks([row(7, 9), *map(row, (0, 1, 2, 5)), row(8, stopped=False)])
    assert text.splitlines()[0] == "4 ranks: t 0-2,5"
    assert text.index("train.py:5") < text.index("1 rank: t 7") < text.index("train.py:9")


def test_stopped_actors_are_announced_at_once_and_each_minute_unattached() -> None:
    told: dict[int, float] = {}
    assert [each.number for each in due([row(0), row(1, driver="ada")], told, 5.0)] == [0]
    assert due([row(0), row(1, driver="ada")], told, 64.0) == []
    assert [each.number for each in due([row(0), row(1)], told, 66.0)] == [0, 1]
    assert due([row(0, stopped=False)], told, 67.0) == []
    assert [each.number for each in due([row(0)], told, 68.0)] == [0]  # it has stopped again


def test_ranks_that_stop_at_one_line_share_a_notice() -> None:
    lines = news([row(0, since=1.0), row(1, since=1.0), row(2, 9)])
    assert lines == [
        "monarch: t 0-1 (2 ranks) have stopped in step() at train.py:5 on node1: breakpoint()",
        "monarch: t 2 has stopped 65 s ago in step() at train.py:9 on node1: breakpoint()",
    ]


def test_names_and_output_of_ranks_are_text_in_all_that_the_debugger_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "name\x1b]0;owned\x07\x9b2J\u202e\nforged"
    odd = row(0, name=hostile)
    line = StackLine(hostile, 1, hostile, hostile)
    odd = odd._replace(place=odd.place._replace(stack=(line,), why=hostile))
    caller, ours = socket.socketpair()
    with caller, ours:
        terminals = Terminal(io.StringIO(), screen := io.StringIO()), _Input(), _Caller(caller)
        for terminal in terminals:
            terminal.write_code(f"{hostile} \x1b[31mred\x1b[0m")
        shown = [screen.getvalue(), capsys.readouterr().out, ours.recv(4096).decode()]
    assert set(shown) == {"name\nforged \x1b[31mred\x1b[0m"}
    notices.say(hostile)
    assert capsys.readouterr().err == "name\nforged\n"
    for text in (views.table([odd]), views.stacks([odd]), *news([odd])):
        assert "\\x1b]0;owned" in text and text.replace("\n", "").isprintable()
        assert "forged" not in text.split("\n")


def test_a_terminal_that_hangs_up_does_not_end_the_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [row(0)]
    said: SimpleQueue[str] = SimpleQueue()

    class HungUp:
        def __init__(self, *_: Any) -> None: ...

        def run(self) -> None:
            rows[:] = [row(1)]
            raise BrokenPipeError

    pressed = iter([True])
    monkeypatch.setattr(notices, "Console", HungUp)
    monkeypatch.setattr(notices, "_enter_pressed", lambda: next(pressed, False))
    monkeypatch.setattr(notices, "say", said.put)
    hub: Any = SimpleNamespace(root=None)
    told = notices.Notices(lambda: rows, hub)
    told.stopped()
    for rank in range(2):
        assert f"t {rank} has stopped" in said.get(timeout=PATIENCE)
    rows.clear()
    wait_until(lambda: not told._running, what="the end of the thread")
