"""Stores of `torch.distributed` that open no port.

A store is kept by one process, and asked over the connections that the program has anyway: between
hosts they are those that have proved who they are, and no other process can read or set a key.

A process is told of a store that it does not keep without importing torch: that takes seconds, and
records are read on the thread that reads all messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

from ._core import plane
from ._namedtuple import NamedTuple
from .errors import SupervisionError

_kept: WeakValueDictionary[int, Keys] = WeakValueDictionary()


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

    keeper: plane.ProcAddress
    number: int

    def __getattr__(self, method: str) -> Any:
        if method not in _METHODS:
            raise AttributeError(method)
        return lambda *arguments: self._ask(method, arguments)

    def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        promise: plane.Promise[Any] = plane.Promise(f"{method} of a store")
        hub, ask = plane.current_hub(), AskStore(self.number, method, arguments)
        plane.ask_one(
            hub, self.keeper, ask, lambda reply: promise.resolve(reply, plane.read_answer)
        )
        plane.block(promise.future, None)  # also where an event loop runs: the answer comes at once
        try:
            return promise.future.get()
        except SupervisionError as error:  # which a caller takes for the end of ranks that it asks
            gone: Any = import_module("torch.distributed").DistStoreError
            raise gone(f"the store of these ranks is gone: {error}") from None


_METHODS = ("set", "get", "add", "check", "compare_set", "delete_key", "num_keys")


class Keys:
    """The keys of a store; methods are as those of torch's stores, and wait for nothing."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        self._values[key] = _bytes(value)

    def get(self, key: str) -> bytes:
        return self._values[key]  # who asks has seen that the key is there

    def add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = b"%d" % total
        return total

    def check(self, keys: Sequence[str]) -> bool:
        return self._values.keys() >= {*keys}

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        found = self._values.get(key)
        if (found or b"") == _bytes(expected):
            self.set(key, desired)
            return _bytes(desired)
        return _bytes(expected) if found is None else found

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def keep() -> tuple[KeptStore, object]:
    """Make a store, which is there as long as the second result is."""
    store = Keys()
    kept = KeptStore(plane.current_hub().address, plane.random_uid())
    _kept[kept.number] = store
    return kept, store


@plane.handles(AskStore)
def _ask(service: plane.ControlService, request: plane.ControlRequest, record: AskStore) -> None:
    store = _kept.get(record.number)
    if store is None or record.method not in _METHODS:
        request.fail(RuntimeError("the store of these ranks has been closed"))
        return
    try:
        request.answer(getattr(store, record.method)(*record.arguments))
    except (LookupError, TypeError, ValueError) as error:
        request.fail(error)


HANDLERS = (_ask,)
