"""The exceptions that all packages raise and programs catch: one tree, split by the party at fault.

    MonarchError
    ├── ActorError            remote code: an endpoint raised; the actor lives on. Also of the type that was raised
    ├── SupervisionError      a lost peer: the actor, its process or its host is gone
    ├── CallTimeoutError      your own time limit for a `call`; it has the answers so far
    ├── DeadlockError         your code: a wait that could only end after itself
    ├── BackpressureError     a peer that does not read: the send was given up
    ├── AddressError          your call: an address of a host that cannot be read
    ├── JobError              hosts that could not be had, found again or let go of
    ├── QueryError            your SQL over telemetry, or its answer is over a limit
    ├── EnvironmentFailed     packages could not be installed for procs on some hosts
    ├── SyncError             your code could not be brought to some hosts
    ├── ElasticError          a group that trains has lost too many ranks
    └── InternalError         our bug: please report it

    UnreadErrorWarning        remote code raised, and the future that says so was never read

Misuse at the call (wrong label, wrong argument, bad name) raises the builtin `TypeError`,
`ValueError`, `KeyError`, `IndexError` or `AttributeError`, as any Python library does, before
anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from ._lazy import shown_by as _shown_by

T = TypeVar("T")


class MonarchError(Exception):
    """Base of every error that only Monarch raises."""

    _repr_html_ = _shown_by("error")


class _Own(Generic[T]):
    """An attribute that the shared exception type of an `ActorError` can't hide.

    Not even a property of that type can.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, error: BaseException | None, owner: type | None = None) -> T:
        values: Any = {self._name: self} if error is None else vars(error)
        try:
            value: T = values[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        return value

    def __set__(self, error: BaseException, value: T) -> None:
        vars(error)[self._name] = value


class ActorError(MonarchError):
    """An endpoint raised an exception; the caller gets it, the actor goes on serving.

    The error of a call is of the original's type as well, wherever a class can be both:
    ``except ValueError`` around a call works, and attributes read as those of the original. Not so
    for what means something else to the caller: `TimeoutError` (its own wait), `StopIteration` and
    `StopAsyncIteration`, and any that is no `Exception`.

    Args:
        exception: The exception the endpoint raised, rebuilt in this process; a `RemoteException`
            stand-in where the original could not be pickled or rebuilt.
        message: Which call failed, for example ``Actor call trainers.train failed.``
        exception_formatted: The remote traceback as text, chained exceptions included.
        rank: Position of the actor in the mesh that was called, where that has more than one.

    Attributes:
        by_rank: What each rank of a `call` has raised that is known to have failed, this error
            included: from `Point`, in the order of ranks. It grows until every rank has answered,
            but not by ranks that are stopped on purpose after this error was raised. Empty for the
            other adverbs.
        other_failures: How many ranks had failed when this error was made, in words; empty where no
            other had.
    """

    exception = _Own[BaseException]()
    message = _Own[str]()
    exception_formatted = _Own[str]()
    rank = _Own[Any]()
    by_rank = _Own[Mapping[Any, BaseException]]()
    other_failures = _Own[str]()

    def __init__(
        self,
        exception: BaseException,
        message: str,
        exception_formatted: str = "",
        rank: Any = None,
    ) -> None:
        # no super().__init__: the next class in the MRO may be the original's, with other
        # constructor arguments
        self.args = exception.args
        self.exception = exception
        self.message = message
        self.exception_formatted = exception_formatted
        self.rank = rank
        self.by_rank = {}
        self.other_failures = ""

    def __str__(self) -> str:
        where = f" Rank {self.rank!r}." if self.rank else ""
        head = self.message + where + self.other_failures
        if not self.exception_formatted:
            return f"{head} {type(self.exception).__name__}: {self.exception}"
        return f"{head}\n {self.exception_formatted}"

    def __reduce__(self) -> tuple[Any, ...]:
        args = (self.exception, self.message, self.exception_formatted, self.rank)
        made_from_those = {
            "exception",
            "message",
            "exception_formatted",
            "rank",
            *vars(self.exception),
        }
        added = {name: value for name, value in vars(self).items() if name not in made_from_those}
        return type(self), args, {**added, "by_rank": self.by_rank}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        vars(self).update(state or {})


class RemoteException(MonarchError):
    """Stands in for a remote exception that could not be pickled there or rebuilt here.

    Args:
        type_name: Qualified name of the original class.
        text: ``str()`` of the original.
        why: The error that kept the original from travelling.
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
        endpoint: The call, for example ``"trainers.train()"``; may be assigned.
        failure: The `MeshFailure` that explains it, or None where the peer ended without failing.
        by_rank: As that of `ActorError`, and so is `other_failures`.
    """

    def __init__(self, message: str, endpoint: str | None = None, failure: Any = None) -> None:
        super().__init__(message)
        self.endpoint = endpoint
        self.failure = failure
        self.by_rank: Mapping[Any, BaseException] = {}
        self.other_failures = ""

    def __str__(self) -> str:
        return super().__str__() + self.other_failures

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"by_rank": self.by_rank, "other_failures": self.other_failures}
        return type(self), (self.args[0], self.endpoint, self.failure), state


def tell_of_others(ranks: Sequence[Any]) -> str:
    """Return a text that says how many of the ranks have failed.

    The text is empty if only the one that the error describes has.

    Args:
        ranks: Points of the ranks that have failed.
    """
    if len(ranks) < 2:
        return ""
    return f"\n{len(ranks)} of {ranks[0].extent.nelements} ranks have failed: {name_some(ranks)}."


def name_some(ranks: Sequence[Any]) -> str:
    """Return the names of the first few ranks, for messages.

    Args:
        ranks: Points of the ranks.
    """
    named = ", ".join(map(repr, ranks[:_NAMED]))
    return f"{named} and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else named


_NAMED = 4


class CallTimeoutError(MonarchError, TimeoutError):
    """The wait for a `call` to many ranks took longer than its reader allowed. The call goes on.

    Attributes:
        values: The answers that had come by then: from `Point`, in the order of ranks.
    """

    def __init__(self, message: str, values: Mapping[Any, Any]) -> None:
        super().__init__(message)
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], dict(self.values))


class DeadlockError(MonarchError, RuntimeError):
    """A wait that can't end: on the waiting code itself, alone or in a circle with other actors.

    Attributes:
        chain: Who waits for what, one text per wait, the one that raises first; empty where an
            actor waits for itself.
    """

    def __init__(self, message: str, chain: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.chain = chain

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.chain)


class BackpressureError(MonarchError, RuntimeError):
    """A peer did not read a message within ``message_delivery_timeout``."""


class AddressError(MonarchError, ValueError, RuntimeError):
    """An address that has none of the forms that are known, or that cannot be used as it was.

    A `ValueError`, as any wrong argument; and a `RuntimeError`, which is what programs for Monarch
    0.7 catch here.
    """


class JobError(MonarchError, RuntimeError):
    """A job could not be started, found again or ended; the text says what to do about it."""


class MountError(MonarchError, RuntimeError):
    """A folder could not be mounted; the text names the missing tool or library."""


class QueryError(MonarchError, RuntimeError):
    """A query of telemetry was refused; the text says why, in one line."""


class SyncError(MonarchError, RuntimeError):
    """A workspace could not be brought to some hosts.

    All others have it, and these what they had before.

    Attributes:
        failed: Host to why.
        result: What came of it on the others, a `monarch.sync.SyncResult`; None if there were none.
    """

    def __init__(self, text: str, failed: Mapping[str, str], result: Any = None) -> None:
        super().__init__(text)
        self.failed = dict(failed)
        self.result = result

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.failed, self.result)


class ElasticError(MonarchError, RuntimeError):
    """A `monarch.elastic` group has fewer ranks left than it needs, and can't start more.

    Its cause is the last loss.
    """


class EnvironmentFailed(MonarchError, RuntimeError):
    """An environment could not be made on some hosts. The text has what the installer said."""


class InternalError(MonarchError, RuntimeError):
    """Something that cannot happen did: a bug in Monarch, not in the program."""


class UnreadErrorWarning(RuntimeWarning):
    """A call failed because its endpoint raised, and its future was dropped unread."""
