"""What tests do of their whole work in one run of CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate.choice import IN_THIRDS, TOGETHER
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


def test_what_is_done_in_thirds_is_there() -> None:
    assert IN_THIRDS | TOGETHER <= {path.name for path in TESTS.rglob("test_*.py")}
