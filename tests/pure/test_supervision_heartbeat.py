"""Who counts as lost: by ticks that were really run, never by time alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.supervision.heartbeat import ALIVE, LOST, SILENT, TICKS, Liveness

EVENTS = st.lists(st.sampled_from(["expected", "seen", "tick"]), max_size=60)


def test_nobody_is_lost_of_whom_nothing_is_expected() -> None:
    liveness = Liveness()
    assert [liveness.tick() for _ in range(100)] == [ALIVE] * 100


def test_silence_is_lost_at_the_last_tick_and_not_before() -> None:
    liveness = Liveness()
    liveness.expected()
    assert [liveness.tick() for _ in range(TICKS)] == [SILENT] * (TICKS - 1) + [LOST]


def test_a_sign_of_life_at_the_last_moment_counts() -> None:
    liveness = Liveness(3)
    for _ in range(5):
        liveness.expected()
        assert [liveness.tick(), liveness.tick()] == [SILENT, SILENT]
        liveness.seen()
        assert liveness.state == ALIVE


def test_to_expect_again_what_is_due_already_gives_no_more_time() -> None:
    liveness = Liveness(2)
    liveness.expected()
    liveness.tick()
    liveness.expected()
    assert liveness.tick() == LOST


@pytest.mark.parametrize("event", ["expected", "seen", "tick"])
def test_who_was_declared_lost_does_not_come_back(event: str) -> None:
    liveness = Liveness(1)
    liveness.expected()
    liveness.tick()
    getattr(liveness, event)()
    assert liveness.state == LOST


@given(EVENTS, st.integers(1, 6))
def test_lost_means_so_many_ticks_in_a_row_without_a_sign_while_one_was_due(
    events: list[str], ticks: int
) -> None:
    liveness = Liveness(ticks)
    due, missed, lost = False, 0, False
    for event in events:
        getattr(liveness, event)()
        if event == "expected":
            due, missed = True, missed if due else 0
        elif event == "seen":
            due = False
        elif due:
            missed += 1
            lost = lost or missed >= ticks
        assert (liveness.state == LOST) == lost
