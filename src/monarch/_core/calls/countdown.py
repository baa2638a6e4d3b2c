"""Counting down what has yet to end. Waits for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable


def countdown(count: int, done: Callable[[], object]) -> Callable[[], None]:
    """What is to be called `count` times, on any thread: the last call calls `done`. Where `count` is 0, that is done now."""
    left = itertools.count(count - 1, -1)

    def one_less() -> None:
        if next(left) == 0:  # one step of the interpreter: no two threads see the same number
            done()

    if not count:
        done()
    return one_less
