"""Gates at the full mailboxes and ports of other processes; `pressure` is the other side."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ... import config
from ...errors import BackpressureError
from ..calls.pending import PendingCall, PendingOperation, subscribe
from ..calls.promise import Promise
from ..calls.waiting import block
from ..calls.waits import note_wait, running_actor
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import Frame
from .contracts import Hub


class BackpressureGate(PendingOperation, Promise[None]):
    """Room in a queue elsewhere, which threads wait for as for the answer to a call."""

    __slots__ = ("_address", "_id")
    name = "room"

    def __init__(self, address: ProcAddress, id: int) -> None:  # noqa: A002
        self._address = address
        self._id = id
        Promise.__init__(self, self)

    def describe(self) -> str:
        return f"room in the mailbox of an actor of {self._address.proc}, which is full"

    def awaited(self) -> PendingCall:
        return PendingCall(self, self._id, (self._address,))

    def reply(self, frame: Frame) -> bool:
        return False  # it is told with a frame of its own

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if address == self._address:
            # the message is then sent, and refused with the end of its receiver, as any other
            self.resolve(None)
        return address == self._address


class BackpressureGates(dict[tuple[ProcAddress, int], BackpressureGate]):
    """The full queues that this process has heard of, by process and actor (or port)."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def heard(self, peer: ProcAddress, frame: Frame) -> None:
        """A receiver tells that it is full, or no more. On the thread that reads."""
        key = peer, frame.target
        if not frame.flags:
            self._end(self.get(key))
        elif key not in self:
            # below 0: no call, which the detector of deadlocks wants to know
            number = -next(self._hub.request_ids)
            room = self[key] = self._hub.requests[number] = BackpressureGate(*key)
            subscribe(room.future, lambda: self._forget(key, number))

    def let_go(self, number: int) -> None:
        """Free a waiter that others wait for: the queue accepts its messages until emptied once."""
        self._end(self._hub.requests.get(number))

    def process_ended(self, address: ProcAddress) -> None:
        """Free all that wait for room there."""
        for key in [key for key in list(self) if key[0] == address]:
            self._end(self.get(key))

    @staticmethod
    def _end(room: Any) -> None:
        if isinstance(room, BackpressureGate):  # a peer names requests by their numbers
            room.resolve(None)

    def _forget(self, key: tuple[ProcAddress, int], number: int) -> None:
        self.pop(key, None)
        self._hub.requests.pop(number, None)

    def wait(self, procs: Sequence[ProcAddress], target: int, timeout: float | None = None) -> None:
        """Wait until an actor, or a port, has room for more on each of these processes.

        Args:
            timeout: Seconds for each; by default `message_delivery_timeout`.

        Raises:
            BackpressureError: One had none for so long. Nothing was sent.
        """
        for address in procs:
            room = self.get((address, target))
            if room is not None:
                self._wait_for(room, address, target, timeout)

    def _wait_for(
        self, room: BackpressureGate, address: ProcAddress, target: int, timeout: float | None
    ) -> None:
        running = running_actor()
        if running is not None and running.uid == target and running.address.proc == address:
            return  # an actor that sends to itself
        if threading.get_ident() == self._hub.poller.thread_id:
            return  # the thread that would hear of the room
        if timeout is None:
            timeout = config.value("message_delivery_timeout")
        # the detector of deadlocks sees it: a full mailbox of an actor that waits for this one is a
        # circle
        noted = note_wait(room.future)
        try:
            block(room.future, timeout)
        except TimeoutError:
            raise BackpressureError(
                f"{address}: one of its actors or ports has had no room for this message for"
                f" {timeout:g}s: it reads nothing, or slower than it is sent to. The limits are"
                " mailbox_limit, mailbox_bytes_limit and message_delivery_timeout."
            ) from None
        finally:
            if noted is not None:
                noted.pop(None, None)
