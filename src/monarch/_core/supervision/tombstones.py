"""The ends of actors and procs, and their causes, for later questions."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

from .failure import Failure

K = TypeVar("K")


class Tombstones(OrderedDict[K, Failure]):
    """A bounded memory: beyond its limit, the oldest note is forgotten first.

    Args:
        limit: How many it keeps; some 1 kB each, and not more than some 50 kB if they have much to
            say.
    """

    def __init__(self, limit: int = 10_000) -> None:
        super().__init__()
        self._limit = limit

    def note(self, key: K, failure: Failure) -> None:
        self[key] = failure.brief()
        while len(self) > self._limit:
            self.popitem(last=False)
