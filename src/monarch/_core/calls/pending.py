"""A pending operation, and the state that its future and its promise share.

The state has the result, and who is to hear of it.

`Promise` writes that state, `Future` reads it. Here is what both need, and what may be asked of a
future from outside.
"""

from __future__ import annotations

import itertools
import os
from _thread import RLock  # what `threading` gives, without the Python function around it
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..._namedtuple import NamedTuple
from ...errors import DeadlockError
from ..wire.address import ProcAddress
from .failed_call import Unread

if TYPE_CHECKING:
    import asyncio

    from ..net.loan import Lendable

forks = 0
"""How often this process, and those before it, were forked since this module was imported."""


changing = RLock()
"""Held while the state of any future changes: for some operations of the interpreter, in which
nothing waits. One for all, as the garbage collector would look at one more object of each pending
call; again by the same thread, as a finalizer or a handler of a signal may run there.
"""


class PendingCall(NamedTuple):
    """An unfinished call: the processes of the actor `uid` that have not answered it.

    Attributes:
        request: The open request, by which the detector knows the call.
        uid: Id of the actor on each of these processes.
        silent: The processes.
    """

    request: object
    uid: int
    silent: Sequence[ProcAddress]


debugged: set[tuple[ProcAddress, int]] = set()
"""Processes and ids of actors that are in the debugger, or wait for such: time limits of calls to
them do not run out.
"""


def is_debugged(call: PendingCall | None) -> bool:
    """Return whether a rank that owes an answer is in the debugger."""
    return (
        bool(debugged)
        and call is not None
        and any((process, call.uid) in debugged for process in call.silent)
    )


class FutureState:
    """The result of an operation, once it is there, and the callbacks that wait for it.

    A base of `Future` alone.
    """

    __slots__ = (
        "__weakref__", "_callbacks", "_decode", "_decoding", "_done", "_error", "_forks", "_name", "_operation", "_value",
    )  # fmt: skip

    _done: bool
    _value: Any
    _error: BaseException | None
    _decode: Callable[[Any], Any] | None
    # held by the reader that does it: a lock of its own, as decoding runs code of the program; there
    # is one from when there is something to decode until that is done
    _decoding: Any
    # no list: the garbage collector would look at one more object of each pending call
    _callbacks: tuple[Callable[[], object], ...]
    # until it is done: it holds this future, and would keep its result from being freed
    _operation: PendingOperation | None
    _name: str  # of the operation, once it is done
    _forks: int  # as `forks` was when this was made


class PendingOperation:
    """The operation behind a future.

    It describes the wait, ends it where nothing else would, and learns of readers.
    """

    __slots__ = ()
    name: str = "an operation"
    """What it is, in few words; `describe` says more while it lasts."""

    def describe(self) -> str:
        return self.name

    def deadlock(self) -> str | None:
        """Why the current thread must not block on this, if it must not."""
        return None

    def before_blocking(self, future: FutureState) -> None:
        """A thread is about to block on this.

        Raises:
            DeadlockError: It must not.
        """
        self.observed(future, None)
        reason = self.deadlock()
        if reason is not None:
            raise DeadlockError(reason)

    def awaited(self) -> PendingCall | None:
        """Return the call that must be answered, by all it says, before the wait ends.

        None if something else may end it.
        """
        return None

    def unanswered(self) -> PendingCall | None:
        """Calls of which any may end the wait, for asking whether they still can be answered."""
        return self.awaited()

    def connection(self) -> Lendable | None:
        """Return the connection, or connections, that bring the answer, if known."""
        return None

    def has_answer_of(self, rank: int) -> bool:
        """Return whether that rank has answered, so that another answer could only repeat it."""
        return False

    def observed(self, future: FutureState, loop: asyncio.AbstractEventLoop | None) -> None:
        """Someone starts to wait: in `loop`, or by blocking a thread."""

    def timed_out(self, text: str) -> TimeoutError:
        """Make the error of a reader that ran out of time."""
        return TimeoutError(text)

    def cancel(self, future: FutureState) -> bool:
        """Try to prevent the invocations that have not begun; False where that can't be."""
        return False

    def abandoned(self, future: FutureState) -> None:
        """A wait timed out or was cancelled."""


class Described(PendingOperation):
    """An operation that is only a text."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def subscribe(future: FutureState, callback: Callable[[], object]) -> None:
    """Call `callback` when a future is done, on the thread that completes it: it must be quick.

    At once if it is done.
    """
    with changing:
        if not future._done:
            # under the lock: between the look and this, the future may be completed on another
            # thread, which would never call it
            future._callbacks += (callback,)
            return
    callback()


def is_awaited(future: FutureState) -> bool:
    """Return whether a thread or task waits for a future, or a callback does."""
    return bool(future._callbacks)


def unsubscribe(future: FutureState, callback: Callable[[], object]) -> None:
    """Take one back that `subscribe` was given, unless it has been called."""
    if future._done:
        return
    with changing:
        kept = list(future._callbacks)
        if callback in kept:
            kept.remove(callback)
            future._callbacks = tuple(kept)


def countdown(count: int, done: Callable[[], object]) -> Callable[[], None]:
    """Return a function; its `count`-th call, on any thread, calls `done`.

    If `count` is 0, `done` is called now.
    """
    # not a number with a lock: `next` on it is a single C call
    left = itertools.count(count - 1, -1)

    def one_less() -> None:
        if next(left) == 0:  # one step of the interpreter: no two threads see the same number
            done()

    if not count:
        done()
    return one_less


def operation_of(future: FutureState) -> PendingOperation | None:
    """Return the pending operation of a future; None once it is done."""
    return future._operation


def has_failed(future: FutureState) -> bool:
    """Return whether a future has failed, as far as is known without decoding the reply."""
    return future._done and (future._error is not None or isinstance(future._decode, Unread))


def notice(future: FutureState) -> None:
    """Note that the error in a future, if there is one, is known to the program.

    There is no warning then that it was not read.
    """
    if isinstance(future._decode, Unread):
        future._decode.noticed()


def unread(future: FutureState) -> Any:
    """Return the reply of a future that no reader has decoded yet; None if there is none."""
    return future._value if future._done and future._decode is not None else None


def _forked() -> None:
    global changing, forks
    changing = RLock()  # a thread that is not in this process may have held the other one
    forks += 1


os.register_at_fork(after_in_child=_forked)
