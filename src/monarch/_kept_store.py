"""Stores of `torch.distributed` that open no port.

A store is kept by one process, and asked over the connections that the program has anyway: between
hosts they are those that have proved who they are, and nobody else can read or set a key.

A process is told of a store that it does not keep without importing torch: that takes seconds, and
records are read on the thread that reads all messages.
"""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

from ._core.plane import (
    ControlRequest,
    ControlService,
    ProcAddress,
    Promise,
    ask_one,
    block,
    current_hub,
    handles,
    random_uid,
    read_answer,
)
from ._namedtuple import NamedTuple
from .errors import SupervisionError

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
        ask = AskStore(self.number, method, arguments)
        ask_one(current_hub(), self.keeper, ask, lambda reply: promise.resolve(reply, read_answer))
        block(promise.future, None)  # also where an event loop runs: the answer comes at once
        try:
            return promise.future.get()
        except SupervisionError as error:  # which a caller takes for the end of ranks that it asks
            gone: Any = import_module("torch.distributed").DistStoreError
            raise gone(f"the store of these ranks is gone: {error}") from None


_METHODS = ("set", "get", "add", "check", "compare_set", "delete_key", "num_keys")


def keep() -> tuple[KeptStore, Any]:
    """Make a store, which is there as long as the second result is."""
    store = import_module("torch.distributed").HashStore()
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


HANDLERS = (_ask,)
