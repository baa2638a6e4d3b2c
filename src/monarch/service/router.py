"""The router of one process for one service: it picks the replica that takes each call.

`handle` and `calls` use it. The keeper tells it which replicas take calls (`Members`); the router
counts the calls of this process that each has not answered. A replica gets only so many at a time;
further calls wait here, in order, for the first that is free.

The wait of a call ends with: a replica that is free; without any replica, the end of `patience`, or
the keeper, which says that there will be none, or has ended; the end of this process's part in the
program, of which the hub tells the router.
"""

from __future__ import annotations

import os
import threading
import time
from binascii import crc32
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .._core import plane
from .._words import NO_REPLICA
from ..actor import Future, SupervisionError
from ..telemetry.metrics import Observation, get_meter
from .calls import kept
from .records import ROUND_ROBIN, Members, Way

if TYPE_CHECKING:
    from .calls import ReplicaCall
    from .keeper import Keeper

_TICK = 1.0  # seconds between two looks at what waits for a replica


class Replica:
    """A replica, as a process that calls it sees it.

    Attributes:
        place: Its number in the service.
        target: Its actors.
        lock: Held for a moment to count: that of the router.
        outstanding: Attempts of this process that are not over.
        late: Those of them that timed out: they take no room.
        takes_calls: False once the keeper has left it out, or it is known to be gone.
    """

    __slots__ = (
        "_router", "late", "lock", "name", "outstanding", "place", "size", "takes_calls", "target",
    )  # fmt: skip

    def __init__(self, router: Router, place: int, target: Any) -> None:
        self._router = router
        self.lock = router.lock
        self.place = place
        self.target = target
        self.name: str = target.name
        self.size = len(target.procs)
        self.outstanding = self.late = 0
        self.takes_calls = True

    def release(self, late: bool = False) -> None:
        """One attempt is over. On any thread."""
        with self.lock:
            self.outstanding -= 1
            self.late -= late
            told = self._router.released(self)
        for request in told:
            request.answer()


class Router:
    """The replicas of one service, for all callers of this process.

    Args:
        hub: Of this process.
        keeper: Knows the replicas.

    Attributes:
        calls: How many were begun.
        retried: How many attempts were made after the first.
        lost: How many calls ended without a replica.
    """

    def __init__(self, hub: plane.Hub, uid: int, name: str, keeper: Keeper, way: Way) -> None:
        self.hub: Any = hub
        self.name = name
        self.lock = threading.Lock()
        self.calls = self.retried = self.lost = 0
        self.uid = uid
        self._keeper = keeper
        self._in_turn = way.route == ROUND_ROBIN
        self._patience = way.patience
        self._room = way.in_flight
        self._replicas: deque[Replica] = deque()
        self._leaving: list[Replica] = []
        self._drains: list[plane.ControlRequest] = []
        self._version = 0
        self._hopeless = ""
        self._waiting: deque[ReplicaCall] = deque()
        self._sending = False  # whether the poller is about to
        self._empty_since = time.monotonic()
        # the number of the request that hears of this process's end, while something waits
        self._standing = 0
        self._asking: Future[Members] | None = None

    # picking

    def begin(self, call: ReplicaCall) -> None:
        """Send a call to a replica, now or when one has room. For errors see `Attempt.send`."""
        with self.lock:
            self.calls += 1
            # calls that wait go first; one of a session waits for its own replica only
            replica = None if self._waiting and call.session is None else self._pick(call)
            if replica is None:
                # a copy: the caller goes on, and may change its arrays before this is sent
                call.content = kept(call.content)
                self._queue(call, first=False)
        if replica is not None:
            call.send(replica)
            call.limit()
            return
        if not self._replicas:
            self.hub.poller.call_soon(self.ask)  # the keeper may have ended
        self.follow(call)
        self.hub.poller.give_way()  # who makes many calls must not keep replicas from getting them

    def again(self, call: ReplicaCall) -> None:
        """Send a call that has lost its replica to another one, before those that wait.

        Called with the lock; then `follow`.
        """
        self.retried += 1
        self._queue(call, first=True)
        self.hub.poller.call_soon(self._send_waiting)

    def follow(self, call: ReplicaCall) -> None:
        """Bound the wait of a call that was queued: by its time, and this process's part."""
        call.limit()
        if self.hub.end is not None:
            self._end(self.hub.end)

    def withdraw(self, call: ReplicaCall) -> bool:
        """Withdraw a call, and return whether it waited for a replica."""
        with self.lock:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def all(self) -> list[Replica]:
        """Every replica that takes calls, by place; each counts one more outstanding."""
        with self.lock:
            self.calls += 1
            for gone in [
                each for each in self._replicas if each.target.known_failure(self.hub) is not None
            ]:
                self._leave(gone)
            found = sorted(self._replicas, key=attrgetter("place"))
            for replica in found:
                replica.outstanding += 1
        return found

    def _pick(self, call: ReplicaCall) -> Replica | None:
        """A replica that has room, and counts the call as outstanding from now on.

        Called with the lock.
        """
        while self._replicas:
            replica = self._prefer(call)
            if replica.target.known_failure(self.hub) is not None:
                self._leave(replica)  # it is gone: the keeper will say so
            elif replica.outstanding - replica.late >= self._room and call.session is None:
                return None
            else:
                replica.outstanding += 1
                return replica
        return None

    def _prefer(self, call: ReplicaCall) -> Replica:
        replicas = self._replicas
        last = call.last
        if call.session is not None:
            # rendezvous hashing: every process prefers the same one, and those of other sessions
            # stay where they are
            return max(
                replicas,
                key=lambda each: (each is not last, crc32(f"{each.place} {call.session}".encode())),
            )
        replicas.rotate(-1)  # the next one, among equals
        if last is not None:
            return min(replicas, key=lambda each: (each is last, each.outstanding))
        if self._in_turn:
            return next(
                (each for each in replicas if each.outstanding - each.late < self._room),
                replicas[0],
            )
        return min(replicas, key=_outstanding)

    def _leave(self, replica: Replica) -> None:
        self._replicas.remove(replica)
        replica.takes_calls = False
        if replica.outstanding:
            self._leaving.append(replica)
        if not self._replicas:
            self._empty_since = time.monotonic()

    def released(self, replica: Replica) -> Iterable[plane.ControlRequest]:
        """A replica has less to do.

        Called with the lock. Returns those to answer who wait for this process to have nothing
        outstanding at replicas that take no more calls.
        """
        self._has_room()
        if replica.takes_calls or replica.outstanding:
            return ()
        return self._drained()

    def is_late(self, replica: Replica) -> None:
        """The time of an attempt there is up. Called with the lock."""
        replica.late += 1
        self._has_room()

    def _has_room(self) -> None:
        if self._waiting and not self._sending:
            self._sending = True
            self.hub.poller.call_soon(self._send_waiting)

    def _drained(self) -> Iterable[plane.ControlRequest]:
        self._leaving = [each for each in self._leaving if each.outstanding]
        if self._leaving:
            return ()
        drains, self._drains = self._drains, []
        return drains

    # waiting for a replica that has room

    def _queue(self, call: ReplicaCall, first: bool) -> None:
        """Called with the lock. What ends the wait: see above."""
        call.since = time.monotonic()
        if first:
            self._waiting.appendleft(call)
        else:
            self._waiting.append(call)
        if not self._standing:
            self._standing = next(self.hub.request_ids)
            # the hub ends requests when this process leaves the program, and so what waits here
            self.hub.requests[self._standing] = self
            self.hub.poller.call_later(_TICK, self._tick)

    def _send_waiting(self) -> None:
        """Send waiting calls, on the poller's thread, where no send waits for room in a mailbox."""
        with self.lock:
            self._sending = False
        while True:
            with self.lock:
                # its time was up, or it was answered late
                while self._waiting and self._waiting[0].future.done():
                    self._waiting.popleft()
                replica = self._pick(self._waiting[0]) if self._waiting else None
                if replica is None:
                    break
                call = self._waiting.popleft()
            try:
                call.send(replica)
            except Exception as error:  # who waits must hear of it
                call.reject(error)
        if not self._replicas:
            self._give_up()

    def _give_up(self) -> None:
        """Refuse calls that waited too long for a replica, or can no longer get one."""
        now = time.monotonic()
        while self._waiting:
            with self.lock:
                if not self._waiting or self._replicas:
                    return
                first = self._waiting[0]
                if (
                    not self._hopeless
                    and now < max(first.since, self._empty_since) + self._patience
                ):
                    return
                self._waiting.popleft()
            self.lost += 1
            why = (
                self._hopeless
                or f"none was ready within {self._patience:g}s. Service.status() says why"
            )
            first.reject(SupervisionError(f"{first.name} has no replica: {why}", first.name))

    def _tick(self) -> None:
        """Check waiting calls, on the poller's thread.

        It checks on the keeper as well, which may have ended.
        """
        self._send_waiting()
        with self.lock:
            if not self._waiting:
                self.hub.requests.pop(self._standing, None)
                self._standing = 0
                return
        self.hub.poller.call_later(_TICK, self._tick)
        if not self._replicas:
            with suppress(SupervisionError):  # this process leaves the program
                self.ask()

    def _end(self, failure: plane.Failure) -> None:
        """This process leaves the program."""
        with self.lock:
            ended, self._waiting = self._waiting, deque()
        for call in ended:
            call.reject(SupervisionError(f"{self.name}: {failure.reason}", self.name))

    def describe(self) -> str:
        """Describe the wait of a call that has no replica."""
        return f"which {'waits for a replica: all are busy' if self._replicas else NO_REPLICA}"

    # the request that stands for what waits

    def reply(self, frame: plane.Frame) -> bool:
        return False

    def peer_failed(self, address: plane.ProcAddress, failure: plane.Failure) -> bool:
        if self.hub.end is None:
            return False
        self._end(failure)
        return True

    # what the keeper says

    def ask(self) -> None:
        """Subscribe to the keeper's replicas and their changes, unless that is under way."""
        if self._asking is None:
            self._asking = future = self._keeper.join.call_one(self.hub.address)
            plane.when_done(future, self._told)

    def _told(self, future: Future[Members]) -> None:
        self._asking = None
        error = future.exception()
        if error is None:
            self.update(future.get())
        else:
            self._hopeless = f"it has ended.\n{error}"
            forget(self)
            self.hub.poller.call_soon(self._send_waiting)

    def update(self, members: Members, request: plane.ControlRequest | None = None) -> None:
        """Take over which replicas take calls.

        Args:
            members: The replicas that take calls.
            request: Is answered when this process has nothing outstanding at others.
        """
        with self.lock:
            # the keeper's answer and its news come over different ways, and may overtake each other
            if members.version > self._version:
                self._version = members.version
                self._hopeless = members.hopeless
                self._take(members)
            if request is not None:
                self._drains.append(request)
            told = self._drained()
        # out of the lock: an answer is a message
        for each in told:
            each.answer()
        if self._waiting:
            self.hub.poller.call_soon(self._send_waiting)

    def _take(self, members: Members) -> None:
        known = {replica.target.uid: replica for replica in self._replicas}
        wanted = {target.uid for _, target in members.replicas}
        for uid, replica in known.items():
            if uid not in wanted:
                self._leave(replica)
        gone = {each.target.uid for each in self._leaving}
        for place, target in members.replicas:
            # a replica that this process knows to be gone may still be in the keeper's list
            if target.uid not in known and target.uid not in gone:
                self._replicas.append(Replica(self, place, target))

    def outstanding(self) -> dict[str, int]:
        """Attempts that are not over, by replica."""
        return {replica.name: replica.outstanding for replica in [*self._replicas, *self._leaving]}


_outstanding = attrgetter("outstanding")
_routers: dict[int, Router] = {}
_making = threading.Lock()


def router_of(uid: int, name: str, keeper: Keeper, way: Way) -> Router:
    """The router of this process for a service; made by its first call."""
    hub = plane.current_hub()
    with _making:
        router = _routers.get(uid)
        if router is not None and router.hub is hub:
            return router
        # what else is there is of a process which has forked this one, or of another session
        for ended in [each for each, known in _routers.items() if known.hub is not hub]:
            del _routers[ended]
        router = _routers[uid] = Router(hub, uid, name, keeper, way)
        _measure()
    router.ask()  # now that it hears of changes
    return router


def held() -> dict[str, int]:
    """How many calls of this process are not answered, by the name of the service."""
    known = [*_routers.values()]
    return {each.name: sum(each.outstanding().values(), len(each._waiting)) for each in known}


def forget(router: Router) -> None:
    """A service has ended. Handles on it that are still there keep its router, to be told so."""
    with _making:
        if _routers.get(router.uid) is router:
            del _routers[router.uid]


@plane.handles(Members)
def _members(service: plane.ControlService, request: plane.ControlRequest, record: Members) -> None:
    router = _routers.get(record.uid)
    if router is None:
        request.answer()  # it calls no more
    else:
        router.update(record, request)
        if record.ended:
            forget(router)


HANDLERS = (_members,)


def _forget_all() -> None:
    global _making
    _making = threading.Lock()
    _routers.clear()


os.register_at_fork(after_in_child=_forget_all)


def _measure() -> None:
    """Have this process's counts among its metrics. The functions are called at each reading."""

    def each(attribute: str) -> Any:
        return lambda _: [
            Observation(getattr(it, attribute), {"service": it.name}) for it in [*_routers.values()]
        ]

    meter = get_meter("monarch.service")
    for name, attribute, text in (
        ("service.calls", "calls", "calls that this process has begun"),
        ("service.retries", "retried", "attempts after the first"),
        ("service.refused", "lost", "calls that found no replica"),
    ):
        meter.create_observable_counter(name, [each(attribute)], "", text)
    meter.create_observable_gauge(
        "service.outstanding",
        [
            lambda _: [
                Observation(count, {"service": router.name, "replica": name})
                for router in [*_routers.values()]
                for name, count in router.outstanding().items()
            ]
        ],
        "",
        "attempts of this process that are not over",
    )
