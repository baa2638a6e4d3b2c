"""The actors of one process: who takes calls, who has ended and why, and the calls that came before
the actor was there.

A call may overtake the spawn of its actor, or come while the actor starts again. Such calls wait
here. They are bounded as those in a mailbox are: a sender of more waits (see `pressure`). What
ends their wait: the actor is registered, it is known not to come, or
`pending_actor_delivery_timeout` has passed since the first of them came.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ... import config
from ..net.poller import Poller
from ..supervision.failure import MISSING, Failure
from ..supervision.tombstones import Tombstones
from ..wire.address import ProcAddress
from ..wire.frame import URGENT, Frame
from .contracts import Origin, Receiver
from .pressure import Pressure


class EarlyCalls(list[tuple[Origin, Frame]]):
    """Calls for one actor that is not there yet."""

    def __init__(self, uid: int) -> None:
        self.pressure = Pressure(uid, self)


class ActorTable(dict[int, Receiver]):
    """Receivers by the id of their actor.

    Args:
        address: This process.
        poller: Its poller.
        refuse: Answers a call that no actor will handle.

    Attributes:
        fates: Why actors have ended, here and elsewhere, as far as that is known.
    """

    def __init__(
        self, address: ProcAddress, poller: Poller, refuse: Callable[[Origin, Frame, Failure], None]
    ) -> None:
        self._address = address
        self._poller = poller
        self._refuse = refuse
        self.fates: Tombstones[tuple[ProcAddress, int]] = Tombstones()
        self._early: dict[int, EarlyCalls] = {}
        self._lock = threading.Lock()

    def register(self, uid: int, receiver: Receiver) -> None:
        """An actor is ready to take calls; those that came before it are handed over, in order."""
        with self._lock:
            early = self._early.pop(uid, None)
            if early is not None:
                # first: the receiver may tell the same senders that it is full itself
                early.pressure.release()
                for origin, frame in early:
                    self._hand_over(receiver, uid, origin, frame)
            self.fates.pop((self._address, uid), None)  # of an incarnation before this one
            # last, and under the lock: a call that comes now is either kept with the early ones or
            # handed over after them
            self[uid] = receiver

    def unregister(self, uid: int, failure: Failure) -> None:
        """An actor has ended; later callers are told why."""
        with self._lock:
            # before it is taken out: `unknown` finds the one or the other
            self.remember(self._address, uid, failure)
            self.pop(uid, None)

    def remember(self, address: ProcAddress, uid: int, failure: Failure) -> None:
        """An actor, here or elsewhere, is known to have ended."""
        if failure.restarts and address != self._address:  # ask again: it may be back
            return
        self.fates.note((address, uid), failure)

    def fate(self, address: ProcAddress, uid: int) -> Failure | None:
        """Why an actor has ended, here or elsewhere, if that is known."""
        return self.fates.get((address, uid))

    def refuse_early(self, uid: int, failure: Failure) -> None:
        """The actor will not come: answer the calls that wait for it."""
        with self._lock:
            early = self._early.pop(uid, None)
        if early is not None:
            for origin, frame in early:
                self._refuse(origin, frame, failure)
            early.pressure.release()

    def unknown(self, origin: Origin, frame: Frame, about: int | None = None) -> None:
        """Answer a call for an actor that has ended for good; keep one for an unknown actor.

        A record for the process that is about an actor waits for that actor as its calls do.
        """
        uid = frame.target if about is None else about
        early = None
        with self._lock:
            receiver = self.get(uid)
            failure = self.fates.get((self._address, uid))
            if receiver is None and (failure is None or failure.restarts):
                early = self._early.get(uid) or self._expect(uid)
                early.append((origin, frame))
        if receiver is not None:  # since the look at this table
            self._hand_over(receiver, uid, origin, frame)
        elif early is None:
            assert failure is not None
            self._refuse(origin, frame, failure)
        elif not frame.flags & URGENT:
            early.pressure.came(origin, frame)
            # they have been taken meanwhile, and nothing else lets their senders go on
            if self._early.get(uid) is not early:
                early.pressure.release()

    def _hand_over(self, receiver: Receiver, uid: int, origin: Origin, frame: Frame) -> None:
        (receiver if frame.target == uid else self[frame.target]).receive(origin, frame)

    def _expect(self, uid: int) -> EarlyCalls:
        early = self._early[uid] = EarlyCalls(uid)
        timeout = config.value("pending_actor_delivery_timeout")
        self._poller.call_later(timeout, lambda: self._give_up(uid, early))
        return early

    def _give_up(self, uid: int, early: EarlyCalls) -> None:
        # those were taken; others, if there are any, have waited less
        if self._early.get(uid) is not early:
            return
        missing = Failure(
            MISSING, "no such actor was spawned on this process", proc=self._address.proc
        )
        self.refuse_early(uid, self.fate(self._address, uid) or missing)
