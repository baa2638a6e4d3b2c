"""A store of `torch.distributed` with waits that look for more than keys, and can be broken off."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed

dist: Any = torch.distributed  # which does not export all of its names for type checkers

SHORTEST, LONGEST = 0.0005, 0.05  # seconds between two looks into a store


class PolledStore(dist.Store):  # type: ignore[misc]
    """A store for torch, in which each wait looks for more than its keys.

    torch's C++ does not keep it: its maker must.

    Args:
        base: The store of the keys: one of torch, or a `KeptStore`.
        check: Raises what ends a wait.
        limit: Of a wait for which torch gives none. None: there is no limit, even if torch gives
            one.
    """

    def __init__(
        self, base: Any, check: Callable[[], object], limit: timedelta | None = None
    ) -> None:
        super().__init__()
        self._base = base
        self._check = check
        self._limit = limit
        self._clones: list[PolledStore] = []

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            DistStoreError: They are not, and the time is over.
        """
        limit = self._limit and (timeout or self._limit)
        end = time.monotonic() + limit.total_seconds() if limit is not None else None
        pause = SHORTEST
        while not self.check(keys):
            self._check()
            if end is not None and time.monotonic() > end:
                raise dist.DistStoreError(f"not all of {', '.join(keys)} were set within {limit}")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return bytes(self._base.get(key))

    def set(self, key: str, value: Any) -> None:
        self._base.set(key, value)

    def add(self, key: str, amount: int) -> int:
        return int(self._base.add(key, amount))

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._base.check(list(keys)))

    def compare_set(self, key: str, expected: str, desired: str) -> Any:
        return self._base.compare_set(key, expected, desired)

    def deleteKey(self, key: str) -> bool:  # noqa: N802  # torch's C++ calls it so
        return bool(self._base.delete_key(key))

    def getNumKeys(self) -> int:  # noqa: N802  # the same
        return int(self._base.num_keys())

    def set_timeout(self, timeout: timedelta) -> None:
        """Ignore it: the limit was given when the store was made."""

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> PolledStore:
        base = self._base.clone() if isinstance(self._base, dist.Store) else self._base
        made = PolledStore(base, self._check, self._limit)
        self._clones.append(made)  # C++ does not keep it
        return made
