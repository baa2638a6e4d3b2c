"""Which batch comes from which loader and goes to which rank."""

from __future__ import annotations

from typing import Any

import pytest

from monarch._core.plane import completed
from monarch.data import Batches
from monarch.data.order import Order
from monarch.errors import BackpressureError


@pytest.mark.parametrize(("workers", "world_size"), [(1, 1), (4, 1), (4, 2), (4, 4), (6, 3)])
def test_ranks_share_all_batches_and_each_goes_to_one(workers: int, world_size: int) -> None:
    orders = [Order(workers, rank, world_size) for rank in range(world_size)]
    turns = [
        order.turn(position) for position in range(0, 3 * workers, world_size) for order in orders
    ]
    assert turns == [(number % workers, number // workers) for number in range(3 * workers)]


def test_a_loader_serves_one_rank() -> None:
    served = [
        {Order(6, rank, 3).turn(position).loader for position in range(0, 60, 3)}
        for rank in range(3)
    ]
    assert served == [{0, 3}, {1, 4}, {2, 5}]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((4, 0, 3), ValueError, "multiple of 3"),
        ((4, 2, 2), ValueError, "less than world_size=2"),
        ((4, -1, 2), ValueError, "at least 0"),
        ((4, 0, 0), ValueError, "at least 1"),
        ((4, 0, 2.0), TypeError, "world_size must be an int"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(
    arguments: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        Order(*arguments)


def test_a_position_inside_a_step_is_refused() -> None:
    assert Order(4, 0, 2).checked(6) == 6
    with pytest.raises(ValueError, match="multiple of world_size=2"):
        Order(4, 0, 2).checked(5)


def test_a_question_that_can_not_be_sent_costs_no_batch() -> None:
    asked = []

    def take(item: int) -> Any:
        asked.append(item)
        if len(asked) in (2, 5):
            raise BackpressureError("the queue is full")
        return completed(item)

    batches: Batches[int] = Batches(Order(1, 0, 1), [take], 2, 0)
    seen: list[int] = []
    while len(seen) < 4:
        try:
            seen.append(next(batches))
        except BackpressureError:
            assert batches.position == len(seen)
    assert seen == [0, 1, 2, 3]
    assert len(asked) > 5
