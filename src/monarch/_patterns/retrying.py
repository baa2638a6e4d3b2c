"""Calls that may be repeated: `Endpoint.options(timeout=5, retries=3)`.

Imported by programs that have some.

Each rank has attempts of its own. One ends with the rank's answer, which settles it; with
`timeout`, when invocations that have not begun are dropped; or with the loss of a rank that may
start again. After `retries` more, the last failure is the rank's. An answer counts whichever
attempt it belongs to: a rank that is slow is not asked in vain.

Nothing here waits. The thread that receives an answer, or a loss, notes it; messages are sent again
by the poller's thread, on which sending never waits for room.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from .._arguments import whole
from .._core.actors.adverbs import CallOptions, Endpoint
from .._core.actors.answers import Answers
from .._core.actors.context import context
from .._core.actors.request import Gather, UnaryCall, was_dropped
from .._core.calls import delivered_failures
from .._core.calls.failed_call import CallSite, FailedCall, Reply
from .._core.calls.future import Future
from .._core.calls.pending import FutureState, PendingCall, PendingOperation, is_debugged, subscribe
from .._core.calls.promise import Promise
from .._core.calls.rebuild import read_value
from .._core.shape import Extent, Point, ValueMesh
from .._core.supervision.failure import Failure
from .._core.wire.address import ProcAddress
from .._core.wire.frame import CANCELLED, REPLY, VALUE, Frame
from .._core.wire.reducers import NOT_TWICE, Dumped, Loan, OnlyLentError
from ..errors import ActorError, SupervisionError, name_some

if TYPE_CHECKING:
    from .._core.hub.message_hub import MessageHub
    from .._core.net.poller import Timer


P = ParamSpec("P")
R = TypeVar("R")


def kind_for(name: str, options: CallOptions) -> type[Endpoint[Any, Any]]:
    """Return the class of an endpoint with these options, if they are good."""
    timeout, retries = options.timeout, options.retries
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise TypeError(
                f"the option timeout of {name} is a number of seconds or None, got {timeout!r}"
            )
        if not 0 < timeout < math.inf:
            raise ValueError(f"the option timeout of {name} is > 0 and finite, got {timeout!r}")
    whole(retries, f"the option retries of {name}", least=0)
    return Endpoint if timeout is None and not retries else RetryingEndpoint


class RetryingEndpoint(Endpoint[P, R]):
    """An endpoint with calls that are repeated: `call`, `call_one` and `choose`."""

    __slots__ = ()

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        return self._ask(sys._getframe(1), args, kwargs)

    def call_one(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if len(self._target.procs) != 1:
            raise self._not_one()
        return self._ask(sys._getframe(1), args, kwargs, None)

    def choose(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return self._ask(sys._getframe(1), args, kwargs, self._target.extent)

    def _ask(self, frame: FrameType, args: Any, kwargs: Any, *choice: Extent | None) -> Future[Any]:
        """Ask all ranks, or one: the only one, or of `choice`."""
        self._check(args, kwargs)
        site, content = (frame.f_code, frame.f_lineno), self._pickle(args, kwargs)
        if choice:
            return CallToOne(self, site, content, *choice).future
        return Call(self, site, content).future

    def broadcast(self, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._refuse("broadcast", "no answer says whether a message has arrived")

    def stream(self, /, *args: P.args, **kwargs: P.kwargs) -> Answers[R]:
        self._refuse("stream", "its answers come one by one")

    def rref(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        self._refuse("rref", "its results stay with the ranks")

    def send(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], port: Any, selection: str
    ) -> None:
        self._refuse("send", "its answers go to a port")

    def _refuse(self, adverb: str, why: str) -> NoReturn:
        raise TypeError(
            f"{adverb} of {self.name} takes no timeout and no retries, as {why}: they are options"
            " of call, call_one and choose"
        )

    def _pickle(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], ranks: Sequence[int] | None = None
    ) -> Dumped | Loan:
        """Pickle arguments as they are now, to be sent any number of times.

        Nothing in them is lent, as that is for one receiver.
        """
        if not self._options.retries:
            return super()._pickle(args, kwargs, ranks)
        try:
            payload, buffers = self._dump(args, kwargs)
        except OnlyLentError as error:
            raise OnlyLentError(f"{self.name} with retries: {NOT_TWICE}") from error
        return payload, [memoryview(bytearray(buffer)) for buffer in buffers]


class _Attempt(PendingOperation):
    """One message to some ranks. As a request it lives until all have answered, however late.

    Args:
        call: Told of answers and losses.
        ranks: Who is asked.
        number: The first is 1.
    """

    __slots__ = ("_call", "number", "open", "request", "silent", "timer")

    def __init__(self, call: _Repeated, ranks: dict[int, ProcAddress], number: int) -> None:
        self._call = call
        self.number = number
        self.silent = ranks
        self.open = set(ranks)  # unanswered ranks of which this is the latest attempt
        self.request = 0  # its number, once it is sent
        self.timer: Timer | None = None

    def unanswered(self) -> PendingCall:
        return PendingCall(self, self._call._target.uid, list(self.silent.values()))

    def reply(self, frame: Frame) -> bool:
        if self.silent.pop(frame.rank, None) is not None:
            self._call.heard(self, frame.rank, frame)
        return self._is_over()

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        for rank, proc in list(self.silent.items()):
            if proc == address and self.silent.pop(rank, None) is not None:
                self._call.heard(self, rank, failure)
        return self._is_over()

    def _is_over(self) -> bool:
        if self.silent:
            return False
        self._call.forget(self)
        return True


class _PendingRetry:
    """A resend that waits for the poller's thread. If that thread has ended, `fail` is called."""

    __slots__ = ("_fail", "_hub")

    def __init__(self, hub: MessageHub, fail: Callable[[], None]) -> None:
        self._hub = hub
        self._fail = fail

    def reply(self, frame: Frame) -> bool:
        return False

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if self._hub.end is None:
            return False
        self._fail()
        return True


class _Repeated(PendingOperation):
    """The base of repeated calls; the other base class makes the result from the final replies."""

    future: Future[Any]

    def _begin(self, endpoint: Endpoint[..., Any], content: Dumped | Loan) -> None:
        cell = context()._cell
        self._home = cell.hub
        self._target = endpoint._target
        self._options = endpoint._options
        self._send = functools.partial(
            self._target.cast, endpoint._meta, content, flags=endpoint._flags, sender=cell
        )
        self._lock = threading.RLock()
        self._cancelled = False
        self._attempts: list[_Attempt] = []  # to which not all have answered
        self._made: dict[int, int] = {}  # how many, by rank
        subscribe(self.future, self._over)
        self._ask(range(len(self._target.procs)), 1)

    def _whom(self, ranks: Sequence[int]) -> Sequence[int]:
        """Return the ranks to ask instead of these."""
        return ranks

    def _has_hope(self, failure: Failure) -> bool:
        """Return whether another rank can be asked after this loss."""
        return failure.restarts

    def settle(self, rank: int, reply: Reply, attempt: _Attempt) -> None:
        """This is what the rank has said at last."""
        raise NotImplementedError

    def _ran_out(self, ranks: Sequence[int], attempt: _Attempt) -> None:
        """The last attempt of these ranks took too long."""
        raise NotImplementedError

    def _ask(self, ranks: Sequence[int], number: int) -> None:
        ranks = self._whom(ranks)
        procs = self._target.procs
        attempt = _Attempt(self, {rank: procs[rank] for rank in ranks}, number)
        with self._lock:
            self._attempts.append(attempt)
            self._made.update(dict.fromkeys(ranks, number))
        # as any call: tables of those on other hosts are kept by the very sequence
        some = None if len(ranks) == len(procs) else ranks
        attempt.request = self._send(request=attempt, ranks=some)
        if self._options.timeout is not None:
            expire = functools.partial(self._expire, attempt)
            attempt.timer = self._home.poller.call_later(self._options.timeout, expire)
            if self.future.done() or not attempt.silent:  # meanwhile
                attempt.timer.cancel()
        if self._cancelled:  # meanwhile as well
            self._cancel(attempt, sorted(attempt.open))

    def heard(self, attempt: _Attempt, rank: int, reply: Reply) -> None:
        """A rank has answered an attempt, or is gone. On any thread."""
        loss = delivered_failures.loss(reply)
        is_answer = loss is None and not was_dropped(reply)
        with self._lock:
            if not is_answer and rank not in attempt.open:  # that attempt was over
                return
            attempt.open.discard(rank)
            again = loss is not None and self._has_hope(loss) and self._may_repeat(attempt)
            if not again:
                self.settle(rank, reply, attempt)
        if again:
            self._ask_soon(attempt, rank, reply)
        elif is_answer and len(self._attempts) > 1:
            # not here: this thread may be one that must not wait for room
            self._home.poller.call_soon(functools.partial(self._drop, rank))

    def _may_repeat(self, attempt: _Attempt) -> bool:
        done = self.future.done() or self._cancelled or self._home.end is not None
        return attempt.number <= self._options.retries and not done

    def _ask_soon(self, attempt: _Attempt, rank: int, failure: Reply) -> None:
        hub = self._home
        fail = functools.partial(self.settle, rank, failure, attempt)
        key = next(hub.request_ids)

        def ask() -> None:
            if hub.requests.pop(key, None) is not None:
                self._ask_again([rank], attempt)

        hub.requests[key] = _PendingRetry(hub, fail)
        hub.poller.call_soon(ask)
        if hub.end is not None and hub.requests.pop(key, None) is not None:
            fail()

    def _ask_again(self, ranks: Sequence[int], attempt: _Attempt) -> None:
        try:
            if self._cancelled:
                for rank in ranks:
                    self.settle(rank, self._dropped(rank), attempt)
            elif not self.future.done():
                self._ask(ranks, attempt.number + 1)
        except Exception as error:  # who waits must hear of it
            Promise.of(self.future).reject(error)

    def _expire(self, attempt: _Attempt, was_debugged: bool = False) -> None:
        """The time of an attempt is up; it begins anew behind the debugger.

        On the poller's thread.
        """
        debugged = is_debugged(attempt.unanswered())
        if debugged or was_debugged:
            seconds = 1.0 if debugged else self._options.timeout or 0.0
            attempt.timer = self._home.poller.call_later(
                seconds, functools.partial(self._expire, attempt, debugged)
            )
            return
        with self._lock:
            late = sorted(attempt.open)
            again = self._may_repeat(attempt)
            attempt.open.clear()
        try:
            self._cancel(attempt, late)
        finally:  # who waits must hear of it
            if late and again:
                self._ask_again(late, attempt)
            elif late:
                with self._lock:
                    self._ran_out(late, attempt)

    def _cancel(self, attempt: _Attempt, ranks: Sequence[int]) -> None:
        procs = self._target.procs
        if attempt.request:  # it is sent; number 0 is that of one-way messages
            self._home.cancel(
                attempt.request, self._target.uid, [(rank, procs[rank]) for rank in ranks]
            )

    def _drop(self, rank: int) -> None:
        """Drop the other attempts once one is answered: the repeated work is not needed."""
        for attempt in self._attempts.copy():
            with self._lock:
                asked = self._same_question(rank, attempt)
                attempt.open.difference_update(asked)
            self._cancel(attempt, asked)

    def _same_question(self, rank: int, attempt: _Attempt) -> list[int]:
        """Return the ranks released from answering, now that `rank` has answered."""
        return [rank] if rank in attempt.open else []

    def _dropped(self, rank: int) -> Frame:
        return Frame(REPLY, CANCELLED, rank, self._target.uid, 0, 0, b"", b"")

    def _over(self) -> None:
        """The future is done."""
        for attempt in self._attempts.copy():
            if attempt.timer is not None:
                attempt.timer.cancel()

    def forget(self, attempt: _Attempt) -> None:
        """Forget an attempt that every rank has answered."""
        with self._lock:
            if attempt in self._attempts:
                self._attempts.remove(attempt)
        if attempt.timer is not None:
            attempt.timer.cancel()

    def _too_late(self, attempt: _Attempt) -> str:
        """Return the error text for ranks that ran out of time."""
        return f"within {self._options.timeout:g}s; {_attempts_made(attempt.number)}"

    # as an operation

    def cancel(self, future: FutureState) -> bool:
        with self._lock:
            self._cancelled = True
        for attempt in self._attempts.copy():
            self._cancel(attempt, sorted(attempt.open))
        return True

    def connection(self) -> None:
        return None  # each attempt may have another one: the poller's thread reads

    def awaited(self) -> PendingCall | None:
        if self._options.timeout is None:
            for attempt in self._attempts.copy():
                # of several, a circle is found through each that is still open when the others are
                # not
                if attempt.open:
                    return PendingCall(attempt, self._target.uid, list(attempt.silent.values()))
        return None


class Call(_Repeated, Gather):
    """`call`: every rank is asked until it has answered."""

    def __init__(
        self, endpoint: Endpoint[..., Any], site: CallSite, content: Dumped | Loan
    ) -> None:
        target, options = endpoint._target, endpoint._options
        Gather.__init__(
            self, endpoint.name, target.uid, target.procs, target.extent, site, options.wait_for_all
        )
        self._late: dict[int, str] = {}
        self._begin(endpoint, content)

    def settle(self, rank: int, reply: Reply, attempt: _Attempt) -> None:
        if isinstance(reply, Frame):
            self.reply(reply)
        else:
            self._take(rank, reply)

    def _ran_out(self, ranks: Sequence[int], attempt: _Attempt) -> None:
        points = name_some([Point(rank, self._extent) for rank in ranks])
        text = f"{self.name}: no answer from {points} {self._too_late(attempt)}"
        self._late.update(dict.fromkeys(ranks, text))
        for rank in ranks:
            self._take(rank, self._dropped(rank))

    def _end_as_failed(self, call: FailedCall, reply: Reply | None) -> None:
        if self._late and was_dropped(reply):
            self._promise.reject(self.timed_out(next(iter(self._late.values()))))
        else:
            super()._end_as_failed(call, reply)

    def _note_failure(self, rank: int, reply: Reply) -> FailedCall:
        with self._lock:
            if self._failed is None:
                self._failed = _FailedAttempts(
                    self.name, self._extent, self._site, self._made, self._late
                )
        return super()._note_failure(rank, reply)


class CallToOne(_Repeated, UnaryCall):
    """`call_one`, and `choose`, where another rank may be asked each time.

    Args:
        extent: The ranks to choose from; None where there is only one.
    """

    def __init__(
        self,
        endpoint: Endpoint[..., Any],
        site: CallSite,
        content: Dumped | Loan,
        extent: Extent | None,
    ) -> None:
        target = endpoint._target
        hub = context()._cell.hub
        UnaryCall.__init__(
            self, endpoint.name, target.uid, target.procs[0], hub, site, extent=extent
        )
        self._begin(endpoint, content)

    def _whom(self, ranks: Sequence[int]) -> Sequence[int]:
        if self._extent is None:
            return ranks
        import random  # here: few programs choose

        others = [rank for rank in self._living() if rank not in self._made]
        return [random.choice(others or self._living() or ranks)]

    def _living(self) -> list[int]:
        return self._target.living_ranks(self._home)

    def _has_hope(self, failure: Failure) -> bool:
        return failure.restarts or bool(self._extent is not None and self._living())

    def settle(self, rank: int, reply: Reply, attempt: _Attempt) -> None:
        if isinstance(reply, Frame) and reply.flags == VALUE:
            self._complete(reply, None, read_value)
        elif was_dropped(reply):
            self._fail(reply, rank)
        else:
            call = _FailedAttempts(self.name, self._extent, self._site, {rank: attempt.number}, {})
            call.add(rank, reply)
            self.fail(call, lambda: call.error(rank))

    def _ran_out(self, ranks: Sequence[int], attempt: _Attempt) -> None:
        self.reject(TimeoutError(f"{self.name}: no answer {self._too_late(attempt)}"))

    def _same_question(self, rank: int, attempt: _Attempt) -> list[int]:
        return sorted(attempt.open)


class _FailedAttempts(FailedCall):
    """The errors of a call that was attempted several times.

    Of ranks that are gone they say how many attempts were made; of others, that they had no
    more time.

    Args:
        made: Attempts by rank.
        late: The text for each rank that timed out.
    """

    __slots__ = ("_late", "_made")

    def __init__(
        self,
        endpoint: str,
        extent: Extent | None,
        site: CallSite | None,
        made: dict[int, int],
        late: dict[int, str],
    ) -> None:
        super().__init__(endpoint, extent, site)
        self._made = made
        self._late = late

    def read(self, rank: int, reply: Reply) -> BaseException:
        if rank in self._late:
            return TimeoutError(self._late[rank])
        error = super().read(rank, reply)
        if isinstance(error, SupervisionError) and not isinstance(error, ActorError):
            error.args = (f"{error.args[0]}\n{_attempts_made(self._made[rank])}",)
        return error


def _attempts_made(count: int) -> str:
    return f"{count} attempts were made" if count > 1 else "1 attempt was made"
