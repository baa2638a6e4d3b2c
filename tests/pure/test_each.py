"""`helpers.each`: a test of many cases fails with the cases that fail."""

from __future__ import annotations

import inspect

import pytest

from helpers.each import for_each


def test_all_cases_are_gone_through() -> None:
    seen = []

    @for_each("number", range(3))
    def note(number: int) -> None:
        seen.append(number)

    note()
    assert seen == [0, 1, 2]


def test_cases_that_fail_are_told_and_the_others_are_gone_through() -> None:
    seen = []

    @for_each("a, b", [(1, "x"), (2, "y"), (3, "z")])
    def is_odd(a: int, b: str) -> None:
        seen.append(b)
        assert a % 2, f"{a} is even"

    with pytest.raises(AssertionError, match="1 of 3 fail, first a=2, b='y': 2 is even") as caught:
        is_odd()
    assert seen == ["x", "y", "z"]
    assert isinstance(caught.value.__cause__, AssertionError)


def test_loops_stand_above_each_other_and_leave_fixtures_to_pytest() -> None:
    seen = []

    @for_each("a", "xy")
    @for_each("b", [1, 2])
    def note(fixture: str, a: str, b: int) -> None:
        seen.append((fixture, a, b))

    assert list(inspect.signature(note).parameters) == ["fixture"]
    note(fixture="f")
    assert seen == [("f", "x", 1), ("f", "x", 2), ("f", "y", 1), ("f", "y", 2)]


def test_a_loop_over_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="nothing to go through for number"):
        for_each("number", [])


def test_a_mark_stays() -> None:
    @for_each("number", [1])
    @pytest.mark.filterwarnings("ignore")
    def check(number: int) -> None: ...

    assert [mark.name for mark in check.pytestmark] == ["filterwarnings"]
