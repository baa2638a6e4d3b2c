"""How long an actor was busy in each of its steps."""

from __future__ import annotations

import pytest

from monarch.why.pace import busy


@pytest.mark.parametrize(
    ("handled", "expected"),
    [
        # three steps, 100 to 110, 110 to 130, 130 to 160
        ([(98, 104, 1), (109, 115, 1), (129, 141, 1)], [5, 6, 11]),  # a call for each
        ([(50, 170, 1)], [10, 20, 30]),  # one call for all of them
        ([(100, 102, 1), (105, 107, 1), (112, 113, 4), (130, 160, 1)], [4, 4, 30]),  # sampled
        ([(100, 109, 2), (100, 109, 1), (110, 111, 1), (135, 140, 1)], [10, 1, 5]),  # at once
        ([(111, 112, 1)], [10, 1, 30]),  # nothing is known of the others
        ([(10, 20, 1), (160, 170, 1), (90, 100, 1)], [10, 20, 30]),
        ([], [10, 20, 30]),
    ],
)
def test_of_a_step_the_time_counts_in_which_the_actor_has_handled_something(
    handled: list[tuple[int, int, int]], expected: list[int]
) -> None:
    assert busy([10, 20, 30], 160, handled) == expected


def test_an_actor_without_steps_has_none() -> None:
    assert busy([], 160, [(100, 200, 1)]) == []
