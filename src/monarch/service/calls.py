"""Calls to a service.

A `ReplicaCall` is what its caller waits for; an `Attempt` is one message of it to one replica.

An attempt is over when all ranks of its replica have answered, or are gone: until then it counts as
outstanding there. Its call hears of it earlier: with the first rank that fails, or when its time is
up; then it takes no room from others. Nothing here waits. What ends a call: an answer; the failure
of its last attempt; the end of its time; `Router.patience` without a replica; the end of this
process's part in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._core import plane
from ..actor import ActorError, Extent, SupervisionError, ValueMesh

if TYPE_CHECKING:
    from .router import Replica, Router

Site = tuple[Any, int]


Content = tuple[bytes, Sequence[memoryview]]
"""The arguments of a call, pickled."""
Message = tuple[str, Site, plane.Owner, bytes, int, Content]
"""What replicas are sent: see the attributes of `ReplicaRequest`."""


def kept(content: Content) -> Content:
    """Arguments as they are now: they are sent after the caller has gone on, or more than once."""
    payload, buffers = content
    return (payload, [memoryview(bytearray(each)) for each in buffers]) if buffers else content


class ReplicaRequest(plane.PendingOperation, plane.Promise[Any]):
    """A message to one replica, or to several, and the future of what they answer.

    One object: the garbage collector looks at each that there is, of every call that waits.

    Attributes:
        name: Of the call, for people.
        site: Where it was made.
        cell: The actor that made it.
        meta: The endpoint, as a frame carries it.
        flags: Of the frame.
        content: The arguments.
    """

    __slots__ = ("cell", "content", "flags", "meta", "name", "site")

    def __init__(self, message: Message) -> None:
        self.name, self.site, self.cell, self.meta, self.flags, self.content = message
        plane.Promise.__init__(self, self)


class Attempt:
    """One message to all ranks of one replica, as a request.

    Args:
        call: Is told of the first failure, or of all answers.
        replica: Counts this as outstanding already.
    """

    __slots__ = ("_call", "_failed", "_number", "answers", "late", "left", "replica")

    def __init__(self, call: ReplicaCall | CallToAll, replica: Replica) -> None:
        self._call = call
        self.replica = replica
        self.left = replica.size
        self.answers: list[plane.Reply | None] = [None] * replica.size
        self._failed = False
        self._number = 0  # of the request, once it is sent
        self.late = False

    def send(self) -> None:
        """Send it; what can't be sent is not outstanding.

        Raises:
            ValueError, BackpressureError: As the adverbs of a mesh.
        """
        call = self._call
        try:
            self._number = self.replica.target.cast(
                call.meta, call.content, self, flags=call.flags, sender=call.cell
            )
        except BaseException:
            self.replica.release(self.late)
            raise

    def cancel(self, hub: Any) -> bool:
        """Have it dropped if it has not begun, which its answer tells.

        Of several ranks some may have begun, which need the others.
        """
        target = self.replica.target
        return (
            self._number > 0
            and self.left == 1 == len(target.procs)
            and hub.cancel(self._number, target.uid, [(0, target.procs[0])])
        )

    def reply(self, frame: plane.Frame) -> bool:
        return self._take(frame.rank, frame, frame.flags == plane.VALUE)

    def peer_failed(self, address: plane.ProcAddress, failure: plane.Failure) -> bool:
        for rank, proc in enumerate(self.replica.target.procs):
            if proc == address:
                self._take(rank, failure, False)
        return self.left == 0

    def _take(self, rank: int, reply: plane.Reply, is_value: bool) -> bool:
        replica = self.replica
        with replica.lock:
            if self.answers[rank] is not None:
                return self.left == 0
            self.answers[rank] = reply
            self.left = left = self.left - 1
            first, self._failed = not is_value and not self._failed, self._failed or not is_value
            failed = self._failed
        if not left:
            replica.release(self.late)
        # out of the lock: this may make the next attempt, or complete the future
        if first:
            self._call.failed(self, rank, reply)
        elif not left and not failed:
            self._call.answered(self)
        return not left


class _Lost(plane.FailedCall):
    """The loss of a replica, with what its caller must know of it.

    Args:
        note: That.
    """

    __slots__ = ("_note",)

    def __init__(self, endpoint: str, site: Site, note: str) -> None:
        super().__init__(endpoint, None, site)
        self._note = note

    def read(self, rank: int, reply: plane.Reply) -> BaseException:
        error = super().read(rank, reply)
        if isinstance(error, SupervisionError) and not isinstance(error, ActorError):
            error.args = (f"{error.args[0]}\n{self._note}",)
        return error


class ReplicaCall(ReplicaRequest):
    """A call to one replica: `call_one`. The value is that of its first rank.

    Args:
        message: The message that is sent.
        router: Knows the replicas.
        session: As of `ServiceEndpoint.options`, and so are `timeout` and `retries`.
    """

    __slots__ = (
        "_attempt", "_cancelled", "_made", "_retries", "_router", "_timeout", "_timer", "last", "session", "since",
    )  # fmt: skip

    def __init__(
        self,
        message: Message,
        router: Router,
        session: str | None,
        timeout: float | None,
        retries: int,
    ) -> None:
        ReplicaRequest.__init__(self, message)
        self.session = session
        self.since = 0.0  # when it began to wait for a replica
        self._router = router
        self._timeout = timeout
        self._retries = retries
        self._made = 0
        self._cancelled = False
        self._attempt: Attempt | None = None  # none while it waits for a replica
        self._timer: Any = None
        self.last: Replica | None = None  # that was asked before

    def limit(self) -> None:
        """Start the time of the call: to get to a replica, and for the answer."""
        if self._timeout is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._router.hub.poller.call_later(self._timeout, self._expired)
            # else the timer holds the call, and its answer, until its time is up
            plane.subscribe(self.future, self._timer.cancel)

    def send(self, replica: Replica) -> None:
        """Ask this replica, which counts it as outstanding already.

        For errors see `Attempt.send`.
        """
        self._made += 1
        self.last = replica
        self._attempt = attempt = Attempt(self, replica)
        attempt.send()

    def answered(self, attempt: Attempt) -> None:
        self.resolve(attempt.answers[0], plane.read_value)

    def failed(self, attempt: Attempt, rank: int, reply: plane.Reply) -> None:
        lost = plane.loss(reply)
        with self._router.lock:
            if attempt is not self._attempt:  # its time was up
                return
            self._attempt = None
            again = lost is not None and self._again()
        if again:
            self._router.follow(self)
            return
        if isinstance(reply, plane.Frame) and reply.flags == plane.CANCELLED:
            self._dropped()
            return
        call = (
            plane.FailedCall(self.name, None, self.site)
            if lost is None
            else _Lost(self.name, self.site, self._why_not_again())
        )
        call.add(rank, reply)
        self.fail(call, lambda: call.error(rank))

    def _again(self) -> bool:
        """Have it wait for another replica, if it may be repeated; called with the lock."""
        if (
            self._made > self._retries
            or self._cancelled
            or self.future.done()
            or self._router.hub.end is not None
        ):
            return False
        self._router.again(self)
        return True

    def _why_not_again(self) -> str:
        if self._retries:
            return f"Attempts made: {self._made}."
        return (
            "Whether that replica has done it, or a part of it, is not known. It is not asked for"
            " again, as the service does not declare this endpoint idempotent."
        )

    def _expired(self) -> None:
        with self._router.lock:
            attempt, self._attempt = self._attempt, None
            if attempt is not None and attempt.left:
                attempt.late = True
                self._router.is_late(attempt.replica)
            again = attempt is not None and self._again()
        if again:
            self._router.follow(self)
        elif not self.future.done():
            self.reject(
                TimeoutError(
                    f"{self.name}: no answer within {self._timeout:g}s. Attempts made:"
                    f" {self._made}."
                )
            )

    # as an operation

    def describe(self) -> str:
        asked = self._attempt
        if asked is not None:
            return f"{self.name} of {asked.replica.name}"
        return f"{self.name}, {self._router.describe()}"

    def awaited(self) -> plane.PendingCall | None:
        return None if self._attempt is None or self._timeout is not None else _owed(self._attempt)

    def cancel(self, future: object) -> bool:
        """Drop a call where it waits for a replica, or in the mailbox of one.

        It is not repeated then.
        """
        asked = self._cancelled
        while not self._router.withdraw(self):
            attempt = self._attempt
            if attempt is None or self._cancelled or not attempt.cancel(self._router.hub):
                # asked, it has been answered meanwhile: maybe that it was dropped
                return asked
            asked = True
            with self._router.lock:
                if attempt is self._attempt:
                    self._cancelled = True
                    return True
            # its replica was lost meanwhile: it waits for another one, or has ended
        self._dropped()
        return True

    def _dropped(self) -> None:
        from concurrent.futures import CancelledError  # here: few programs cancel

        self.reject(CancelledError(f"{self.name} was cancelled before it had begun"))

    def connection(self) -> Any:
        attempt = self._attempt
        if attempt is None or self._retries or attempt.replica.size > 1:
            return None  # the poller's thread reads
        peer = self._router.hub.peers.get(attempt.replica.target.procs[0])
        return peer.connection if peer is not None else None


class CallToAll(ReplicaRequest):
    """A call to all ranks of some replicas: `call`. It fails with the first rank that does.

    Args:
        message: The message that is sent.
        replicas: These; each counts it as outstanding already.
        extent: Of the values.
    """

    __slots__ = ("_attempts", "_extent", "_failed", "_left")

    def __init__(self, message: Message, replicas: Sequence[Replica], extent: Extent) -> None:
        ReplicaRequest.__init__(self, message)
        self._extent = extent
        self._failed = plane.FailedCall(self.name, extent, self.site)
        self._attempts = [Attempt(self, replica) for replica in replicas]
        self._left = set(self._attempts)

    def send(self) -> None:
        """Send the call; for errors see `Attempt.send`."""
        for index, attempt in enumerate(self._attempts):
            try:
                attempt.send()
            except BaseException:
                # each was counted as outstanding when the call was made
                for unsent in self._attempts[index + 1 :]:
                    unsent.replica.release()
                raise

    def answered(self, attempt: Attempt) -> None:
        self._left.discard(attempt)
        if not self._left:
            self.resolve(None, self._read)

    def failed(self, attempt: Attempt, rank: int, reply: plane.Reply) -> None:
        self._failed.add(self._attempts.index(attempt) * attempt.replica.size + rank, reply)
        self.fail(self._failed, self._failed.root_cause)

    def _read(self, _: None) -> ValueMesh[Any]:
        answers: Any = (answer for attempt in self._attempts for answer in attempt.answers)
        values = list(map(plane.read_value, answers))  # all are frames
        return ValueMesh(plane.Shape.from_extent(self._extent), values)

    def awaited(self) -> plane.PendingCall | None:
        return next(filter(None, map(_owed, self._attempts)), None)  # each must be answered


def _owed(attempt: Attempt) -> plane.PendingCall | None:
    target = attempt.replica.target
    silent = [
        proc for proc, answer in zip(target.procs, attempt.answers, strict=True) if answer is None
    ]
    return plane.PendingCall(attempt, target.uid, silent) if silent else None
