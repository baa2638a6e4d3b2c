"""One tree of errors, split by whose fault it was.

    MonarchError
    ├── ActorError            remote code: an endpoint raised; the actor lives on
    ├── SupervisionError      a lost peer: the actor, its process or its host is gone
    ├── DeadlockError         your code: a wait that could only end after itself
    ├── BackpressureError     a peer that does not read: the send was given up
    └── InternalError         our bug: please report it

Misuse at the call (wrong label, wrong argument, bad name) raises the builtin `TypeError`, `ValueError`, `KeyError`,
`IndexError` or `AttributeError`, as any Python library does, before anything is sent.
"""

from __future__ import annotations

from typing import Any


class MonarchError(Exception):
    """Base of every error that only Monarch raises."""


class ActorError(MonarchError):
    """An endpoint raised an exception; the caller gets it, the actor goes on serving.

    Args:
        exception: The exception the endpoint raised, rebuilt in this process; a `RemoteException` stand-in where the
            original could not be pickled or rebuilt.
        message: Which call failed, for example ``Actor call trainers.train failed.``
        exception_formatted: The remote traceback as text, chained exceptions included.
        rank: Position of the actor in the mesh that was called, where that has more than one.
    """

    def __init__(self, exception: BaseException, message: str, exception_formatted: str = "", rank: Any = None) -> None:
        super().__init__(exception, message, exception_formatted, rank)
        self.exception = exception
        self.message = message
        self.exception_formatted = exception_formatted
        self.rank = rank

    def __str__(self) -> str:
        where = f" Rank {self.rank!r}." if self.rank else ""
        if not self.exception_formatted:
            return f"{self.message}{where} {type(self.exception).__name__}: {self.exception}"
        return f"{self.message}{where}\n {self.exception_formatted}"


class RemoteException(MonarchError):
    """Stands in for a remote exception that could not be pickled there or rebuilt here.

    Args:
        type_name: Qualified name of the original class.
        text: ``str()`` of the original.
        why: What kept the original from travelling.
    """

    def __init__(self, type_name: str, text: str, why: str) -> None:
        super().__init__(type_name, text, why)
        self.type_name = type_name
        self.text = text
        self.why = why

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text} (a stand-in: {self.why})"


class SupervisionError(MonarchError, RuntimeError):
    """The actor, process or host that should have answered is gone.

    Attributes:
        endpoint: What was called, for example ``"trainers.train()"``; may be assigned.
        failure: The `MeshFailure` that explains it, or None where the peer ended without failing.
    """

    def __init__(self, message: str, endpoint: str | None = None, failure: Any = None) -> None:
        super().__init__(message)
        self.endpoint = endpoint
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.endpoint, self.failure)


class DeadlockError(MonarchError, RuntimeError):
    """A wait that could only end after the code that waits has returned, alone or in a circle with other actors.

    Attributes:
        chain: Who waits for what, one text per wait, the one that raises first; empty where an actor waits for itself.
    """

    def __init__(self, message: str, chain: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.chain = chain

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.chain)


class BackpressureError(MonarchError, RuntimeError):
    """A peer did not read what was sent to it within ``message_delivery_timeout``."""


class InternalError(MonarchError, RuntimeError):
    """Something that cannot happen did: a bug in Monarch, not in the program."""
