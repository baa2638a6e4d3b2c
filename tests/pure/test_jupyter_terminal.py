"""``%monarch`` in IPython of a terminal: what ranks have said does nothing to it; and what is no
argument is one line.
"""

from __future__ import annotations

import atexit
from typing import Any

import pytest

pytest.importorskip("IPython", reason="IPython is not installed")

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from monarch.errors import MonarchError
from monarch.jupyter import magics
from monarch.stacks import Frame, ProcStacks, Stacks, ThreadStack
from monarch.telemetry.result import QueryResult
from monarch.why import STUCK, Verdict

HOSTILE = "before\x1b[2J\x1b]0;title\x07\x1b[31mafter\u202e"


@pytest.fixture
def shell() -> Any:
    found: Any = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))  # type: ignore[no-untyped-call]
    atexit.unregister(found.atexit_operations)
    magics.load(found)
    return found


def of_a_rank() -> Stacks:
    thread = ThreadStack("MainThread", (Frame(HOSTILE, "train.py", 1),), "trainer", "step")
    return Stacks([ProcStacks("m", 0, 1, 4711, "h", "itself", "", (thread,))], {})


def shown(shell: Any, found: Any) -> str:
    """As a cell shows what it returns."""
    return str(shell.display_formatter.format(found)[0]["text/plain"])


class DataFrame:
    """As much of pandas as is shown."""

    def __repr__(self) -> str:
        return f"0  {HOSTILE}"


DataFrame.__module__ = "pandas.core.frame"


@pytest.mark.parametrize(
    "found",
    [
        of_a_rank(),
        Verdict(STUCK, f"Stuck in {HOSTILE}.", failures=(HOSTILE,)),
        QueryResult([{"text": HOSTILE}], ["text"], None, {}, {}),
        DataFrame(),
    ],
    ids=lambda found: type(found).__name__,
)
def test_what_ranks_have_said_does_nothing_to_the_terminal(shell: Any, found: Any) -> None:
    text = shown(shell, found)
    assert "before" in text and "after" in text and "\x1b" not in text and "\u202e" not in text


def test_an_error_of_ranks_does_nothing_to_the_terminal(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: object) -> None:
        raise MonarchError(HOSTILE)

    monkeypatch.setattr(magics, "_why", fail)
    with pytest.raises(UsageError) as raised:
        shell.run_line_magic("monarch", "why")
    assert str(raised.value) == "monarch why: beforeafter"


@pytest.mark.parametrize("last", ["0", "-1"])
def test_a_count_of_lines_that_is_none_is_refused(shell: Any, last: str) -> None:
    with pytest.raises(
        UsageError, match=f"--last is how many lines to show, 1 or more, got {last}"
    ):
        shell.run_line_magic("monarch", f"logs --last={last}")


@pytest.mark.parametrize("name", ["class", "None", "1st", "a.b"])
def test_rows_are_not_kept_under_what_is_no_name_of_a_variable(shell: Any, name: str) -> None:
    with pytest.raises(UsageError, match=f"under the name of a variable, not '{name}'"):
        shell.run_cell_magic("monarch", f"sql {name}", "SELECT 1")
