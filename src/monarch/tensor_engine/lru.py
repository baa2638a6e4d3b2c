"""A bounded LRU mapping, for results per kind of arguments.

A program may have any number of kinds.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LRU(Generic[K, V]):
    """A mapping of at most `most` entries; a new one replaces the least recently used."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value under a key, and mark it as used."""
        found = self._kept.get(key)
        if found is not None:
            with suppress(KeyError):  # another thread has just put it out
                self._kept.move_to_end(key)
        return found

    def __setitem__(self, key: K, value: V) -> None:
        self._kept[key] = value
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
