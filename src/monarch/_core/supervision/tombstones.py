"""What has ended, and why, for whoever asks later."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from .failure import Failure

K = TypeVar("K")
_LIMIT = 10_000


class Tombstones(Generic[K]):
    """A bounded memory: beyond its limit, what was noted first is forgotten first.

    Args:
        limit: How many it keeps; some 1 kB each, and not more than some 50 kB if they have much to say.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._ends: OrderedDict[K, Failure] = OrderedDict()
        self._limit = limit

    def note(self, key: K, failure: Failure) -> None:
        self._ends[key] = failure.brief()
        while len(self._ends) > self._limit:
            self._ends.popitem(last=False)

    def get(self, key: K) -> Failure | None:
        return self._ends.get(key)

    def forget(self, key: K) -> None:
        """It is back."""
        self._ends.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._ends

    def __len__(self) -> int:
        return len(self._ends)
