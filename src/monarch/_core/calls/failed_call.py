"""The ranks of one call that have failed: what each raised, and a warning if it is never read.

Made with the first failure of a call, so that calls which succeed pay nothing.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from queue import SimpleQueue
from threading import RLock
from types import CodeType
from typing import Any, TypeVar

from ...errors import ActorError, SupervisionError, UnreadErrorWarning, name_some, tell_of_others
from ..shape import Extent, Point
from ..supervision.failure import Failure
from ..wire.frame import CANCELLED, DEAD, ERROR, Frame
from . import delivered_failures
from .callbacks import callback_thread
from .cancelled import is_cancelled
from .remote_error import said_by, supervision_error, to_exception

R = TypeVar("R")
Reply = Frame | Failure


CallSite = tuple[CodeType, int]
"""What ran when a call was made, and the line."""

_OURS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ""
)


class Outcome(Exception):
    """An answer that is an error, and may be no `Exception`.

    Raised by what decodes it. Such answers are sent through ports.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error


class FailedCall:
    """The failures of one call, by rank.

    Args:
        endpoint: The call as messages show it.
        extent: The ranks that were called; None where that was one.
        site: Where the program made the call.
    """

    __slots__ = (
        "_errors", "_extent", "_raised", "_replies", "death", "endpoint", "noticed", "site",
    )  # fmt: skip

    def __init__(
        self, endpoint: str, extent: Extent | None = None, site: CallSite | None = None
    ) -> None:
        self.endpoint = endpoint
        self.site = site
        self._extent = extent
        self._replies: dict[int, Reply] = {}
        self._errors: dict[int, BaseException] = {}
        self._raised = False
        self.death: Failure | None = None  # of another process of the mesh, if one is the reason
        # whether the program has read one of them, or was warned that it has not
        self.noticed = False

    def add(self, rank: int, reply: Reply) -> None:
        # the caller that saw the failure stopped the other ranks: those did not fail
        if self._raised and _is_stop(reply):
            return
        self._replies[rank] = reply
        if self.noticed:
            delivered_failures.note(reply)

    def notice(self) -> None:
        """The program sees one of them, and so all."""
        self.noticed = True
        for reply in list(self._replies.values()):
            delivered_failures.note(reply)

    def points(self) -> list[Point]:
        """The ranks that are known to have failed by now, in order."""
        extent = self._extent
        return [Point(rank, extent) for rank in sorted(self._replies)] if extent is not None else []

    def error(self, rank: int) -> BaseException:
        """Return the exception of a rank, the same object each time.

        Making it runs code of its class.

        Raises:
            KeyError: It is not known to have failed.
        """
        reply = self._replies[rank]
        if rank not in self._errors:
            self._errors.setdefault(rank, self.read(rank, reply))
        return self._errors[rank]

    def read(self, rank: int, reply: Reply) -> BaseException:
        """The error that a reply stands for."""
        point = None if self._extent is None else Point(rank, self._extent)
        return to_exception(reply, self.endpoint, point)

    def cause(self, rank: int, reply: Reply | None = None) -> BaseException:
        """Return the error of a rank; of one of the network, the death that led to it, if any.

        Args:
            rank: The rank.
            reply: One of its replies; the last one otherwise, of which there is one error.
        """
        error = self.error(rank) if reply is None else self.read(rank, reply)
        if not is_of_network(reply or self._replies[rank]):
            return error
        dead = [each for each in sorted(self._replies) if _is_death(self._replies[each])]
        if dead:
            why = self.error(dead[0])
        elif self.death is not None:
            why = supervision_error(self.death, self.endpoint)
        else:
            return error
        why.__cause__ = error
        return why

    def root_cause(self) -> BaseException:
        """Return the error of the lowest rank that did not fail because another had.

        Of the lowest at all if there is none like that.

        It knows of all others, see `ActorError.by_rank`.
        """
        self._raised = True
        ranks = sorted(self._replies)
        rank = next((rank for rank in ranks if not _is_consequence(self.error(rank))), ranks[0])
        error = self.cause(rank)
        if isinstance(error, (ActorError, SupervisionError)):
            error.by_rank = ErrorsByRank(self)
            failed = [point for point in self.points() if not _is_stop(self._replies[point.rank])]
            error.other_failures = tell_of_others(failed)
        return error

    def warning(self) -> str | None:
        """Describe the exceptions of endpoints without running their code; None without any."""
        replies = sorted(self._replies.items(), key=itemgetter(0))
        raised = {
            rank: reply
            for rank, reply in replies
            if isinstance(reply, Frame) and reply.flags not in (DEAD, CANCELLED)
        }
        if not raised:
            return None
        points = [point for point in self.points() if point.rank in raised]
        where = f" on {name_some(points)}" if points else ""
        said = said_by(next(iter(raised.values())))
        return f"{self.endpoint} failed{where}, and the future that says so was not read. {said}"


def _is_stop(reply: Reply) -> bool:
    """Return whether the reply says that the rank was stopped on purpose."""
    lost = delivered_failures.loss(reply)
    return lost is not None and lost.is_stop


def _is_death(reply: Reply) -> bool:
    lost = delivered_failures.loss(reply)
    return lost is not None and not lost.is_stop


def is_of_network(reply: Reply | str) -> bool:
    """Return whether a rank has raised, or a text says, what the loss of a connection leads to."""
    text = said_by(reply) if isinstance(reply, Frame) and reply.flags == ERROR else reply
    return isinstance(text, str) and _NETWORK.search(text) is not None


# of Python, torch's stores, gloo and NCCL
_NETWORK = re.compile(
    r"\b(Connection\w*|BrokenPipe|DistNetwork|DistStore|DistBackend)Error\b"
    r"|gloo/transport|Connection (closed|reset) by peer|NCCL"
)


def _is_consequence(error: BaseException) -> bool:
    """Return whether the error follows from another end: actor stopped, callee lost, timeout."""
    if not isinstance(error, SupervisionError):
        return is_cancelled(error) or isinstance(error, TimeoutError)
    return isinstance(error, ActorError) or error.failure is None or error.failure.event.is_stop


class ByRank(Mapping[Point, R]):
    """A mapping of ranks, made of what came from each. A copy elsewhere is a plain dict."""

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class ErrorsByRank(ByRank[BaseException]):
    """A view of a failed call, which grows with it."""

    def __init__(self, call: FailedCall) -> None:
        self._call = call

    def __getitem__(self, point: Point) -> BaseException:
        if point not in self._call.points():
            raise KeyError(point)
        return self._call.error(point.rank)

    def __iter__(self) -> Iterator[Point]:
        return iter(self._call.points())

    def __len__(self) -> int:
        return len(self._call.points())


_unread: set[FailedCall] = set()
"""Failed calls that were not read yet, each once, however many of its futures have failed."""
_PATIENCE = 5.0  # seconds for the end of what shows a warning, which may be the program's own
_telling = RLock()  # again by the same thread where what shows a warning has one of its own


class Unread:
    """Makes the error of a failed future when it is first read.

    If it never is, a warning follows the future's end.

    Garbage is collected on any thread and inside of any lock, so that only leaves word for the
    thread that runs callbacks. Errors still unread when the program ends are reported then.

    Args:
        call: The failed call.
        make: Makes the error.
    """

    __slots__ = ("_call", "_expected", "_jobs", "_make")

    def __init__(self, call: FailedCall, make: Callable[[], BaseException]) -> None:
        self._call = call
        self._make = make
        self._expected = False  # another failure may have been the first to complete the future
        try:
            self._jobs = callback_thread.jobs()
        except RuntimeError:  # the system has no thread to give: it is told when the program ends
            self._jobs = SimpleQueue()

    def expect_reader(self) -> None:
        """Report the error from now on if its future is dropped unread."""
        self._expected = True
        _unread.add(self._call)
        if self._call.noticed:  # meanwhile, or through another future of the same call
            _unread.discard(self._call)

    def __call__(self, value: object) -> Any:
        self.noticed()
        raise Outcome(self._make())

    def noticed(self) -> None:
        """The program sees it."""
        self._call.notice()
        _unread.discard(self._call)

    # what it needs at the very end of the interpreter, when globals may be gone already
    def __del__(self, unread: set[FailedCall] = _unread, partial: Any = functools.partial) -> None:
        if self._expected and self._call in unread:
            self._jobs.put(partial(_tell, self._call))


def _tell(call: FailedCall) -> None:
    with _telling:
        if call not in _unread:  # it was told when another of its futures ended
            return
        _unread.discard(call)
        call.noticed = True
        text = call.warning()
        if text is not None:
            file, line = "<monarch>", 1
            if call.site is not None and not call.site[0].co_filename.startswith(_OURS):
                file, line = call.site[0].co_filename, call.site[1]
            # without a registry, equal texts are all shown
            warnings.warn_explicit(UnreadErrorWarning(text), None, file, line, "monarch")


def tell_all() -> None:
    """The program ends: warn of everything that it has not read."""
    # the thread of callbacks may be about to, and dies with the interpreter
    if not _telling.acquire(timeout=_PATIENCE):
        return
    for call in list(_unread):
        try:
            _tell(call)
        except Exception as error:  # warnings are errors
            sys.excepthook(type(error), error, None)
    _telling.release()


def _forget() -> None:
    global _telling
    _telling = RLock()
    _unread.clear()


atexit.register(tell_all)
os.register_at_fork(after_in_child=_forget)
