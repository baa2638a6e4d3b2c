"""Loans: tensors of a worker lent to an actor of its process, while the worker stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch.utils import _pytree as pytree

from ..._core.plane import NotYet, current_hub, pickling, running_loop
from ...actor import context
from ..errors import RemoteException
from ..groups.in_process import PerProc
from ..instructions import Poison
from .stream_rendezvous import queued, wait_behind


class Loan:
    """Tensors in the hands of an actor, while the worker stands still.

    On a GPU it is their streams that wait for each other.

    Attributes:
        keep: Whether what the actor returns is for the worker.
        result: What it returned, or
        error: what it raised.
        returned: Set when the actor has handled the message.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._callbacks: list[Callable[[], object]] = []
        self._poison: Poison | None = None
        self._queued: list[tuple[Any, Any]] = []  # tensors, and events after their last use
        self.keep = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.returned = threading.Event()

    def open(self, poison: Poison | None, keep: bool, tensors: Sequence[Any] = ()) -> None:
        """The worker has come to it; `poison` if one of the tensors has failed."""
        self._note_queue(tensors)
        with self._lock:
            self._poison, self.keep, self._open = poison, keep, True
            callbacks, self._callbacks = self._callbacks, []
        # out of the lock, which is not reentrant: a callback may come back here
        for callback in callbacks:
            callback()

    def when_open(self, callback: Callable[[], object]) -> None:
        """Call on the worker's thread, or now."""
        with self._lock:
            if not self._open:
                self._callbacks.append(callback)
                return
        callback()

    def take(self) -> None:
        """Wait for the worker; raise if one of the tensors has failed.

        On an event loop: raise `NotYet` rather than wait.
        """
        if not self._open:
            if running_loop() is not None:
                # a wait here would stop all other tasks of the loop
                raise NotYet(self.when_open)
            opened = threading.Event()
            self.when_open(opened.set)
            opened.wait()
        context()._when_handled(self._handled)
        if self._poison is not None:
            raise RemoteException(self._poison)
        self.wait_for_queue()

    def wait_for_queue(self) -> None:
        """Let this thread's streams of GPUs wait for what the other side has told its own."""
        for value, done in self._queued:
            wait_behind(value, done)

    def _note_queue(self, tensors: Sequence[Any]) -> None:
        self._queued = [(value, done) for value in tensors if (done := queued(value)) is not None]

    def _handled(self, result: Any, error: BaseException | None) -> Any:
        self.result, self.error = result, error
        made = pytree.tree_leaves(result) if self.keep else []
        self._note_queue([*(value for value, _ in self._queued), *made])
        self.returned.set()
        return None if self.keep else result


_loans: PerProc[dict[tuple[str, int], Loan]] = PerProc(dict)
_refused: PerProc[dict[str, Poison]] = PerProc(dict)


def loan(uid: str, ticket: int) -> Loan:
    """Return the loan with a ticket, which the first call makes."""
    # the worker and the actor may come in either order, on two threads: `setdefault` gives both the
    # same
    found, refused = _loans().setdefault((uid, ticket), Loan()), _refused()
    if uid in refused:
        found.open(refused[uid], keep=False)
    return found


def forget_loan(uid: str, ticket: int) -> None:
    """The worker goes on."""
    _loans().pop((uid, ticket), None)


def end_loans(uid: str, why: Poison) -> None:
    """End the waits for the loans of a worker that has ended."""
    for key, each in list(_loans().items()):
        if key[0] == uid:
            each.open(why, keep=False)


def refuse_loans(uid: str, why: Poison) -> None:
    """The worker has lost all that it had, and does nothing more: nothing can be borrowed of it."""
    _refused()[uid] = why
    end_loans(uid, why)


class Lent(NamedTuple):
    """A message with tensors in it, for an actor that lives where they do.

    Attributes:
        uid: The engine's id.
        worker: The id of the actors that are its workers.
        ticket: Of the loan.
        payload: The message, pickled, and
        buffers: its buffers.
    """

    uid: str
    worker: int
    ticket: int
    payload: Any
    buffers: list[Any]

    def __reduce__(self) -> Any:
        return _receive, tuple(self)


def _receive(uid: str, worker: int, ticket: int, payload: Any, buffers: list[Any]) -> Any:
    """Runs where the actor does, as it reads its message.

    What ends the wait: the worker comes to the instruction. It was sent before this message, and if
    the worker is there, it will; if its process ends, so does this one.
    """
    if worker not in current_hub().actors:
        raise RuntimeError("the tensor engine of the tensors in this message has ended")
    loan(uid, ticket).take()
    return pickling.loads(payload, buffers)
