"""Calls that wait for replies: one answer, one per rank gathered, or one per rank as they come.

Each is told of every reply and of every process that is gone, by the thread that learns of it, and
completes its futures. Nothing here waits. A request leaves the hub's table with its last reply or
failure.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

from ..._unsendable import explain
from ...errors import CallTimeoutError, name_some
from ..calls.cancelled import cancelled_error
from ..calls.failed_call import CallSite, FailedCall, Reply
from ..calls.future import Future
from ..calls.pending import FutureState, PendingCall, PendingOperation
from ..calls.promise import Promise
from ..calls.rebuild import read_value
from ..calls.remote_error import read_answer, supervision_error, to_exception
from ..calls.waits import running_actor
from ..net.loan import Lendable
from ..shape import Extent, Point, Shape, Slice, ValueMesh
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import CANCELLED, VALUE, Frame
from .answers import AnswersByRank
from .context import current_hub
from .deaths import await_cause

if TYPE_CHECKING:
    from ..hub.message_hub import MessageHub

R = TypeVar("R")


def _read_mesh(call: str, extent: Extent, frames: list[Frame]) -> ValueMesh[Any]:
    shape = Shape(extent.labels, Slice.new_row_major(extent.sizes))
    unread = iter(frames)
    try:
        return ValueMesh(shape, [read_value(frame) for frame in unread])
    except Exception as error:
        point = Point(len(frames) - length_hint(unread) - 1, extent)
        explain(error, f"what came of {call} on {point!r} could not be read here")
        raise


def blocked_by(uid: int, procs: Sequence[ProcAddress], endpoint: str) -> str | None:
    """Return why the current thread must not block on a call to these actors.

    One of them is the actor that it runs.
    """
    running = running_actor()
    if running is not None and running.uid == uid and running.address.proc in procs:
        return (
            f"{endpoint} would wait for the very actor that is waiting: it can handle the call only"
            " after the endpoint that waits has returned. Call a plain method of self, or do not"
            " wait for the answer"
        )
    return None


def was_dropped(reply: Reply | None) -> bool:
    return isinstance(reply, Frame) and reply.flags == CANCELLED


def _connection_to(hub: MessageHub, proc: ProcAddress) -> Lendable | None:
    """The connection over which a process answers this one."""
    peer = hub.peers.get(proc)
    return None if peer is None else peer.connection


class RankFuture(Future[R]):
    """The answer of one rank of a mesh: the next that comes of a `stream`, or that of `choose`."""

    __slots__ = ("_rank",)
    _rank: Point

    @property
    def rank(self) -> Point | None:
        """Which rank answered, in the mesh that was called; None until it has."""
        return getattr(self, "_rank", None) if self.done() else None


class UnaryCall(PendingOperation, Promise[Any]):
    """One call to one actor.

    Args:
        rank: Which one it is, of `extent`; None where there is only one.
    """

    __slots__ = ("_extent", "_hub", "_proc", "_rank", "_site", "_uid", "name", "number")
    number: int  # of the request, from when it has been sent

    def __init__(
        self,
        endpoint: str,
        uid: int,
        proc: ProcAddress,
        hub: MessageHub,
        site: CallSite | None = None,
        rank: int = 0,
        extent: Extent | None = None,
    ) -> None:
        self.name = endpoint
        self._site = site
        self._uid = uid
        self._proc = proc
        self._hub = hub
        self._rank = rank
        self._extent = extent
        Promise.__init__(self, self, Future if extent is None else RankFuture)
        if extent is not None:
            self.future._rank = Point(rank, extent)  # type: ignore[attr-defined]

    def reply(self, frame: Frame) -> bool:
        if frame.flags == VALUE:
            self._complete(frame, None, read_value)
        else:
            self._fail(frame, self._rank)
        return True

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if address != self._proc:
            return False
        self._fail(failure, self._rank)
        return True

    def cancel(self, future: FutureState) -> bool:
        return self._hub.cancel(self.number, self._uid, [(0, self._proc)])

    def _fail(self, reply: Reply, rank: int) -> None:
        if was_dropped(reply):
            self.reject(cancelled_error(self.name))
            return
        call = FailedCall(self.name, self._extent, self._site)
        call.add(rank, reply)
        end = functools.partial(self.fail, call, functools.partial(call.cause, rank))
        # an error of the network may come of another rank's death, which is told within moments
        await_cause(call, self._proc, reply, end)

    def connection(self) -> Lendable | None:
        return _connection_to(self._hub, self._proc)

    def deadlock(self) -> str | None:
        return blocked_by(self._uid, (self._proc,), self.name)

    def awaited(self) -> PendingCall | None:
        return PendingCall(self, self._uid, (self._proc,))


class _PerRank(PendingOperation):
    """Expects one answer of each rank; the last of them, or of their failures, ends the request."""

    __slots__ = ()
    _left: int

    def reply(self, frame: Frame) -> bool:
        return self._take(frame.rank, frame)

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        for rank, proc in self._silent():
            if proc == address:
                self._take(rank, failure)
        return self._left == 0

    def _silent(self) -> list[tuple[int, ProcAddress]]:
        """The ranks that have not answered, each with its process."""
        raise NotImplementedError

    def _take(self, rank: int, reply: Reply) -> bool:
        raise NotImplementedError


class _MeshCall(_PerRank):
    """One call to every actor of a mesh."""

    __slots__ = ("_extent", "_failed", "_left", "_procs", "_site", "_uid", "name", "number")
    number: int

    def __init__(
        self,
        endpoint: str,
        uid: int,
        procs: Sequence[ProcAddress],
        extent: Extent,
        site: CallSite | None = None,
    ) -> None:
        self.name = endpoint
        self._site = site
        self._uid = uid
        self._procs = procs
        self._extent = extent
        self._left = len(procs)
        self._failed: FailedCall | None = None
        self._prepare()

    def _prepare(self) -> None:
        """Make what a kind of call needs beside."""

    def connection(self) -> Lendable | None:
        hub = current_hub()
        return _connection_to(hub, self._procs[0]) if len(self._procs) == 1 else hub.answers

    def deadlock(self) -> str | None:
        return blocked_by(self._uid, self._procs, self.name)

    def unanswered(self) -> PendingCall:
        return PendingCall(self, self._uid, [proc for _, proc in self._silent()])

    def cancel(self, future: FutureState) -> bool:
        return current_hub().cancel(self.number, self._uid, self._silent())

    def _note_failure(self, rank: int, reply: Reply) -> FailedCall:
        with _noting:
            if self._failed is None:
                self._failed = FailedCall(self.name, self._extent, self._site)
            self._failed.add(rank, reply)
            return self._failed


_noting = threading.RLock()  # failures of two ranks may arrive on two threads


class Gather(_MeshCall):
    """Done with the last answer, or the first that is no value, unless it shall wait for all."""

    __slots__ = ("_promise", "_replies", "_wait_for_all", "future")

    def __init__(
        self,
        endpoint: str,
        uid: int,
        procs: Sequence[ProcAddress],
        extent: Extent,
        site: CallSite | None = None,
        wait_for_all: bool = False,
    ) -> None:
        super().__init__(endpoint, uid, procs, extent, site)
        self._replies: list[Reply | None] = [None] * len(procs)
        self._wait_for_all = wait_for_all
        self._promise: Promise[Any] = Promise(self)
        self.future = self._promise.future

    def reply(self, frame: Frame) -> bool:
        if frame.flags != VALUE or self._replies[frame.rank] is not None:
            return self._take(frame.rank, frame)
        self._replies[frame.rank] = frame
        self._left = left = self._left - 1
        if not left:
            self._all_answered()
        return not left

    def _take(self, rank: int, reply: Reply) -> bool:
        if self._replies[rank] is None:
            self._replies[rank] = reply
            if isinstance(reply, Failure) or reply.flags != VALUE:
                # before it is counted: the thread that counts last must know
                call = self._note_failure(rank, reply)
                if not self._wait_for_all:
                    end = functools.partial(self._end_as_failed, call, reply)
                    await_cause(call, self._procs[rank], reply, end)
            self._left = left = self._left - 1
            if not left:
                self._all_answered()
        return self._left == 0

    def _all_answered(self) -> None:
        call = self._failed
        if call is None:
            self._promise.resolve(
                self._replies, functools.partial(_read_mesh, self.name, self._extent)
            )
        elif self._wait_for_all:
            dropped = [reply for reply in self._replies if was_dropped(reply)]
            self._end_as_failed(call, dropped[0] if len(dropped) == len(call.points()) else None)

    def _end_as_failed(self, call: FailedCall, reply: Reply | None) -> None:
        if was_dropped(reply):
            self._promise.reject(cancelled_error(self.name))
        else:
            self._promise.fail(call, call.root_cause)

    def timed_out(self, text: str) -> TimeoutError:
        came = {
            rank: reply
            for rank, reply in enumerate(self._replies)
            if isinstance(reply, Frame) and reply.flags == VALUE
        }
        return CallTimeoutError(text, AnswersByRank(self._extent, came))

    def _silent(self) -> list[tuple[int, ProcAddress]]:
        return [each for each in enumerate(self._procs) if self._replies[each[0]] is None]

    def awaited(self) -> PendingCall | None:
        return self.unanswered()

    def describe(self) -> str:
        size = len(self._procs)
        silent = [rank for rank, _ in self._silent()]
        if not silent:
            return f"{self.name} on {size} ranks"
        named = name_some([Point(rank, self._extent) for rank in silent])
        return f"{self.name} on {size} ranks; no answer yet from {named}"


class StreamCall(_MeshCall):
    """Each answer completes the next future, and lets go of it.

    Several sends of one rank, through an explicit port, take several places.
    """

    __slots__ = ("_answered", "futures")

    def _prepare(self) -> None:
        self._answered: list[int] = []
        futures: Any = (Promise(self, RankFuture).future for _ in self._procs)
        self.futures: deque[RankFuture[Any]] = deque(futures)

    def _silent(self) -> list[tuple[int, ProcAddress]]:
        return [(rank, proc) for rank, proc in enumerate(self._procs) if rank not in self._answered]

    def has_answer_of(self, rank: int) -> bool:
        return rank in self._answered

    def _take(self, rank: int, reply: Reply) -> bool:
        try:
            future = self.futures.popleft()
        except IndexError:
            return True
        self._answered.append(rank)
        self._left = len(self.futures)
        future._rank = Point(rank, self._extent)
        promise = Promise.of(future)
        if was_dropped(reply):
            promise.reject(cancelled_error(self.name))
        elif isinstance(reply, Failure) or reply.flags != VALUE:
            call = self._note_failure(rank, reply)
            error = functools.partial(call.cause, rank, reply)
            end = functools.partial(promise.fail, call, error)
            await_cause(call, self._procs[rank], reply, end)
        else:
            promise.resolve(reply, read_value)
        return self._left == 0

    def describe(self) -> str:
        return f"the next answer of {self.name}; {len(self._answered)} of {len(self._procs)} came"


class SystemCall(_PerRank, Promise[Any]):
    """Calls to processes themselves; done with the last answer, or with the first that failed.

    Args:
        what: Description of the wait, for time-out errors.
        procs: The process behind each expected answer, by the rank with which it is called; a list
            where those are 0, 1, ...
        value: The future's result.
    """

    __slots__ = ("_answered", "_left", "_procs", "_value", "name")

    def __init__(
        self, what: str, procs: Sequence[ProcAddress] | Mapping[int, ProcAddress], value: Any = None
    ) -> None:
        self.name = what
        self._procs = procs if isinstance(procs, Mapping) else dict(enumerate(procs))
        self._left = len(procs)
        self._answered: set[int] = set()
        self._value = value
        Promise.__init__(self, self)

    def _silent(self) -> list[tuple[int, ProcAddress]]:
        return [each for each in self._procs.items() if each[0] not in self._answered]

    def _take(self, rank: int, reply: Reply) -> bool:
        if rank not in self._answered:
            self._answered.add(rank)
            self._left -= 1
            if self._is_failure(reply):
                self.resolve(reply, self._read)
            elif not self._left:
                self.resolve(self._value)
        return self._left == 0

    @staticmethod
    def _is_failure(reply: Reply) -> bool:
        return isinstance(reply, Failure) or reply.flags != VALUE

    def _read(self, reply: Reply) -> Any:
        return read_answer(reply, lambda failure: supervision_error(failure, self.name))

    def describe(self) -> str:
        return f"{self.name} ({len(self._procs) - self._left} of {len(self._procs)} done)"


class StopCall(SystemCall):
    """As `SystemCall`, but a process that is gone has stopped."""

    __slots__ = ()

    @staticmethod
    def _is_failure(reply: Reply) -> bool:
        return False


class SpawnCall(SystemCall):
    """Actors to be created; an error that kept them from it is raised as it came.

    Args:
        what: As for `SystemCall`.
        procs: As there.
        uid: The actors' id.
    """

    __slots__ = ("_uid",)

    def __init__(self, what: str, procs: Sequence[ProcAddress], uid: int) -> None:
        super().__init__(what, procs)
        self._uid = uid

    def awaited(self) -> PendingCall:
        """The actors themselves, which a bootstrap function may hold back."""
        return PendingCall(self, self._uid, [proc for _, proc in self._silent()])

    def _read(self, reply: Reply) -> Any:
        raise to_exception(reply, self.name)
