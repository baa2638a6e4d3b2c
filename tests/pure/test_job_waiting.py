"""What people see while a job waits for machines."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from monarch._patterns.activities import other_waits
from monarch.job.base.waiting import Waiting


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, seconds: int) -> str:
    """What is shown of a wait, with a state for each second."""
    now = [0.0]
    screen = Screen(is_terminal)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", screen)
    wait = Waiting("Slurm job 7")
    for second in range(seconds):
        now[0] = float(second)
        wait.show(f"state {second}")
    wait.__exit__()
    return screen.getvalue()


def test_on_a_terminal_one_line_changes_and_is_gone_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = shown(monkeypatch, is_terminal=True, seconds=4)
    assert said == "Slurm job 7: state 2; 2 s\033[K\rSlurm job 7: state 3; 3 s\033[K\r\033[K"


def test_on_a_terminal_what_is_waited_for_is_a_table_that_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    screen, now = Screen(True), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", screen)
    wait = Waiting("job")
    now[0] = 5.0
    wait.show("0 of 2", [("a", "no room for it in this cluster"), ("longer", "new")])
    assert (
        screen.getvalue()
        == "job: 0 of 2; 5 s\033[K\n  a       no room for it in t\033[K\n  longer "
        " new\033[K\r\033[2A"
    )
    screen.truncate(0)
    screen.seek(0)
    wait.show("1 of 2", [("longer", "new")])
    assert screen.getvalue() == "\033[Jjob: 1 of 2; 5 s\033[K\n  longer  new\033[K\r\033[1A"
    screen.truncate(0)
    screen.seek(0)
    wait.show("1 of 99", [(str(number), "x") for number in range(99)])
    assert screen.getvalue().count("\n") == 13 and "  ... and 87 more" in screen.getvalue()
    wait.__exit__()
    assert screen.getvalue().endswith("\033[J")


def test_without_a_terminal_there_is_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown(monkeypatch, is_terminal=False, seconds=140)
    assert said == "".join(f"Slurm job 7: state {second}; {second} s\n" for second in (10, 70, 130))


def test_what_a_thread_waits_for_is_known_of_it_until_the_wait_is_over() -> None:
    here, before = threading.get_ident(), time.time()
    with Waiting("Slurm job 7") as wait:
        wait.show("PENDING (Resources)")
        since, what = other_waits[here]
        assert what == "Slurm job 7: PENDING (Resources)" and before - 1 < since <= time.time()
    assert here not in other_waits


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_short_wait_is_not_worth_a_word(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    assert shown(monkeypatch, is_terminal=is_terminal, seconds=2) == ""
