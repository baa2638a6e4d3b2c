"""Stores of `torch.distributed` that open no port.

A store is kept by one process, and asked over the connections that the program has anyway: between
hosts they are those that have proved who they are, and nobody else can read or set a key.

What ends a wait for keys: that they are there; what `check` raises; the limit; the end of the
process that keeps the store, or of the store there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

import torch.distributed

from ._core.plane import (
    ControlRequest,
    ControlService,
    ProcAddress,
    Promise,
    SingleAnswer,
    block,
    current_hub,
    handles,
    random_uid,
    read_answer,
    register,
    send_record,
)
from ._namedtuple import NamedTuple
from .errors import SupervisionError

dist: Any = torch.distributed  # which does not export all of its names for type checkers

SHORTEST, LONGEST = 0.0005, 0.05  # seconds between two looks into a store

_kept: WeakValueDictionary[int, Any] = WeakValueDictionary()


class AskStore(NamedTuple):
    """Do this with a store that you keep. Answer: what it returns."""

    number: int
    method: str
    arguments: tuple[Any, ...]


class KeptStore(NamedTuple):
    """A store that a process keeps, as any process of the program can ask it.

    Attributes:
        keeper: The process.
        number: Of the store there.
    """

    keeper: ProcAddress
    number: int

    def __getattr__(self, method: str) -> Any:
        if method not in _METHODS:
            raise AttributeError(method)
        return lambda *arguments: self._ask(method, arguments)

    def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        promise: Promise[Any] = Promise(f"{method} of a store")
        answer = SingleAnswer(self.keeper, lambda reply: promise.resolve(reply, read_answer))
        send_record(current_hub(), self.keeper, AskStore(self.number, method, arguments), answer)
        block(promise.future, None)  # also where an event loop runs: the answer comes at once
        try:
            return promise.future.get()
        except (
            SupervisionError
        ) as error:  # for a caller, that would be the end of the ranks it asks
            raise dist.DistStoreError(f"the store of these ranks is gone: {error}") from None


_METHODS = ("set", "get", "add", "check", "compare_set", "delete_key", "num_keys")


def keep() -> tuple[KeptStore, Any]:
    """Make a store, which is there as long as the second result is."""
    store = dist.HashStore()
    store.set_timeout(timedelta(milliseconds=1))  # who asks has seen that the key is there
    kept = KeptStore(current_hub().address, random_uid())
    _kept[kept.number] = store
    return kept, store


@handles(AskStore)
def _ask(service: ControlService, request: ControlRequest, record: AskStore) -> None:
    store = _kept.get(record.number)
    if store is None or record.method not in _METHODS:
        request.fail(RuntimeError("the store of these ranks has been closed"))
        return
    try:
        request.answer(getattr(store, record.method)(*record.arguments))
    except (RuntimeError, TypeError) as error:
        request.fail(error)


class PolledStore(dist.Store):  # type: ignore[misc]
    """A store for torch, in which each wait looks for more than its keys.

    torch's C++ does not keep it: whoever hands it on does.

    Args:
        base: What has the keys.
        check: Raises what ends a wait.
        limit: Of a wait for which torch gives none. None: there is no limit, whatever torch gives.
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
                raise dist.DistStoreError(f"nobody has set all of {', '.join(keys)} within {limit}")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)

    def get(self, key: str) -> bytes:
        self.wait([key])
        found: bytes = self._base.get(key)
        return found

    def set(self, key: str, value: Any) -> None:
        self._base.set(key, value)

    def add(self, key: str, amount: int) -> int:
        total: int = self._base.add(key, amount)
        return total

    def check(self, keys: Sequence[str]) -> bool:
        found: bool = self._base.check(list(keys))
        return found

    def compare_set(self, key: str, expected: str, desired: str) -> Any:
        return self._base.compare_set(key, expected, desired)

    def deleteKey(self, key: str) -> bool:  # noqa: N802  # torch's C++ calls it so
        deleted: bool = self._base.delete_key(key)
        return deleted

    def getNumKeys(self) -> int:  # noqa: N802  # the same
        count: int = self._base.num_keys()
        return count

    def set_timeout(self, timeout: timedelta) -> None:
        """Ignore it: the limit is that of whoever made the store."""

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> PolledStore:
        base = self._base.clone() if isinstance(self._base, dist.Store) else self._base
        made = PolledStore(base, self._check, self._limit)
        self._clones.append(made)  # C++ does not keep it
        return made


register(_ask)
