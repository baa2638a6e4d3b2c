"""Answers that can't be read where they come to: each adverb names the call and the rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from monarch.actor import Actor, Future, endpoint

if TYPE_CHECKING:
    from conftest import Spawn


def refuse() -> NoReturn:
    raise ValueError("not here")


class Unreadable:
    def __reduce__(self) -> Any:
        return refuse, ()


class Worker(Actor):
    @endpoint
    def give(self) -> Unreadable:
        return Unreadable()


WAYS: dict[str, Callable[[Any], Future[Any]]] = {
    "call": lambda workers: workers.give.call(),
    "choose": lambda workers: workers.give.choose(),
    "stream": lambda workers: next(iter(workers.give.stream())),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_cannot_be_read_names_its_call_and_its_rank(spawn: Spawn, way: str) -> None:
    future = WAYS[way](spawn(2).spawn("workers", Worker))
    with pytest.raises(ValueError, match="could not be read here: not here") as raised:
        future.get()
    rank = getattr(future, "rank", None)
    named = r"{'gpus': 0/2}" if rank is None else repr(rank)
    assert str(raised.value).startswith(f"what came of workers.give() on {named} could not")


def test_the_future_of_a_rank_tells_it_once_it_is_done(spawn: Spawn) -> None:
    workers = spawn(2).spawn("workers", Worker)
    asked: Any = workers.give.choose()
    assert asked.exception() is not None
    assert asked.rank.rank in (0, 1)
