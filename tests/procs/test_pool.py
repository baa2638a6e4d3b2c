"""`monarch.actor.pool`: a function on many procs, with a bound on what is under way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import ActorError, pool

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn


def square(number: int) -> int:
    return number * number


def picky(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number


def wait_for_file(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.005)
    return path


def test_results_come_in_the_order_of_the_items(spawn: Spawn) -> None:
    with pool(spawn(3), square) as squares:
        assert list(squares.map(range(200))) == [number * number for number in range(200)]
        assert list(squares.map([])) == []
        assert list(squares.map(iter([7]))) == [49]  # again, with whatever can be iterated


def test_items_are_asked_for_only_when_there_is_room(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    asked: list[int] = []

    def items() -> Iterator[str]:
        yield str(tmp_path)  # which is there
        for number in range(1000):
            asked.append(number)
            yield str(door)

    with pool(spawn(2), wait_for_file, in_flight=3) as waiting:
        results = waiting.map(items())
        assert next(results) == str(tmp_path)
        assert len(asked) <= 3 * 2
        results.close()  # type: ignore[attr-defined]  # a generator; what has not begun is dropped
        door.touch()


def test_an_error_is_raised_at_its_place_and_the_pool_goes_on(spawn: Spawn) -> None:
    with pool(spawn(2), picky) as numbers:
        results = numbers.map(range(10))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three") as caught:
            next(results)
        assert isinstance(caught.value, ActorError)
        assert list(numbers.map([4, 5])) == [4, 5]


async def nothing(item: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "in_flight", "error"),
    [
        (5, 2, TypeError),
        (nothing, 2, TypeError),
        (square, "2", TypeError),
        (square, True, TypeError),
        (square, 0, ValueError),
    ],
)
def test_a_pool_of_what_cannot_be_one_is_refused(
    spawn: Spawn, function: Any, in_flight: Any, error: Any
) -> None:
    with pytest.raises(error):
        pool(spawn(1), function, in_flight=in_flight)
