"""Collects the warnings about errors that nobody has read; without it they would fail the test."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.waiting import wait_until
from monarch._core.calls.callbacks import callback_thread
from monarch.errors import UnreadErrorWarning


class Unread:
    """What was warned of, in order.

    The warnings come from a thread of the engine, in their own time.
    """

    def __init__(self, caught: list[warnings.WarningMessage]) -> None:
        self._caught = caught

    @property
    def texts(self) -> list[str]:
        return [
            str(entry.message) for entry in self._caught if entry.category is UnreadErrorWarning
        ]

    def wait_for(self, count: int) -> list[str]:
        wait_until(
            lambda: len(self.texts) >= count,
            what=f"{count} warnings of unread errors (so far: {self.texts})",
        )
        self.settle()
        assert len(self.texts) == count, self.texts
        return self.texts

    def settle(self) -> None:
        """Until everything that is to be warned of by now has been."""
        gc.collect()
        jobs = callback_thread.jobs()
        done: list[bool] = []
        jobs.put(lambda: done.append(True))
        wait_until(lambda: done, what="the thread that warns")


@contextmanager
def unread_errors() -> Iterator[Unread]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnreadErrorWarning)
        unread = Unread(caught)
        yield unread
        unread.settle()
