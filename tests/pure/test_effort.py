"""What tests do of their whole work in one run of CI."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gate.choice import BY_DEFAULT, IN_THIRDS, TOGETHER, configure
from helpers import effort

TESTS = Path(__file__).parent.parent


def test_three_runs_that_follow_each_other_do_everything_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []
    for number in range(3):
        monkeypatch.setattr(effort, "TURN", str(number))
        done += effort.part_of(range(20))
    assert sorted(done) == list(range(20))
    monkeypatch.setattr(effort, "TURN", None)
    assert effort.part_of(range(20)) == list(range(20))


def test_a_plain_run_does_less_of_what_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for in_ci, chosen, rest, less in (
        (False, BY_DEFAULT, False, True),
        (False, BY_DEFAULT, True, False),
        (True, BY_DEFAULT, True, True),
        (False, "slow", False, False),
    ):
        monkeypatch.setattr(effort, "IN_CI", in_ci)
        monkeypatch.setattr(effort, "short", in_ci)
        option = SimpleNamespace(markexpr=chosen, rest=rest, all=False)
        config: Any = SimpleNamespace(option=option, args_source=None)
        configure(config)
        assert effort.shortened("whole", "less") == ("less" if less else "whole")


def test_what_is_done_in_thirds_is_there() -> None:
    assert IN_THIRDS | TOGETHER <= {path.name for path in TESTS.rglob("test_*.py")}
