"""The way to processes of other hosts: frames with a route, through both gateways.

Credit keeps a fast sender from filling the memory of all processes on the way: a receiver says
how many bytes of calls and port values it has taken in, each sender waits once more than a window
of them is on its way. What ends that wait: the receiver takes some in, it ends, or
`message_delivery_timeout` passes. Answers are counted by themselves (`Outflow`): they are sent all
the same, and the sender waits afterwards. Those to a cast are joined on their way, and are not
counted.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Sequence

from ... import config
from ...errors import BackpressureError
from ..net.connection import Connection
from ..net.segment import Segment
from ..routing.route import Route, route_prefix, with_prefix
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import CREDIT, REPLY, Frame
from .contracts import Hub, SendFrame
from .pressure import counted, size_of

# bytes taken in until the sender is told; no window is smaller than four times that
_CREDIT_EVERY = 256 * 1024

_known_prefix = functools.lru_cache(maxsize=1024)(route_prefix)


class RemotePeer:
    """A process of another host that receives requests from here, in place of a `LocalPeer`.

    Args:
        hub: That of this process.
        address: Of the process.
        send: To other hosts, by way of this one's gateway.
    """

    __slots__ = (
        "_credited", "_ended", "_groups", "_hub", "_prefix", "_room", "_send", "_sent", "address",
        "failure", "window",
    )  # fmt: skip

    starting = False  # whether it has started is known to its host only

    def __init__(self, hub: Hub, address: ProcAddress, send: SendFrame) -> None:
        self._hub = hub
        self._send = send
        self.address = address
        self.failure: Failure | None = None
        self._prefix = route_prefix(Route(address, hub.address))
        self._ended = -1  # the last incarnation that is known to have ended
        self._room = threading.Condition()
        self.window: int = max(config.value("send_buffer_limit"), 4 * _CREDIT_EVERY)
        self._sent = 0
        self._credited = 0
        self._groups: list[CastGroup] = []

    @property
    def connection(self) -> Connection | None:
        """The connection that its answers come from: the one to the gateway."""
        gateway = self._hub.peers.get(self._hub.address.agent)
        return None if gateway is None else gateway.connection

    def send(self, frame: Frame, segment: Segment | None = None) -> Failure | None:
        """Send a frame; the failure if the process, or its host, is gone."""
        failure = self.known_failure()
        if failure is not None:
            return failure
        size = counted(frame)
        # of two threads that send at once one may not be counted: credits make up for it
        self._sent += size
        failure = self._send(with_prefix(frame, self._prefix))
        # after the send: the receiver grants credit for what it has got, so a sender never waits
        # with nothing on its way
        if size and self.outstanding > self.window:
            self.wait_for_room()
        return failure

    def known_failure(self) -> Failure | None:
        """Why it is gone; it may be asked again if it may start again."""
        failure = self.failure
        if failure is not None and failure.restarts:
            self.failure = failure = None
        return failure

    def end(self, failure: Failure) -> Collection[int]:
        """The process is gone.

        Returns the numbers of all open requests: which of them went there is not noted.
        """
        with self._room:
            if failure.restarts and failure.incarnation <= self._ended:
                return ()
            # late news of an earlier end must not end the next incarnation
            self._ended = max(self._ended, failure.incarnation)
            known, self.failure = self.failure, failure
            # the next incarnation starts with an empty window; casts count in their groups, and are
            # offset here
            self._sent, self._credited = 0, sum(group.sent for group in self._groups)
            for group in self._groups:
                group.complete = False
            self._room.notify_all()
        return () if known is not None else list(self._hub.requests)

    def flush(self, timeout: float) -> None:
        pass  # nothing waits here

    # credit

    @property
    def outstanding(self) -> int:
        """Bytes on their way."""
        cast = sum(group.sent for group in self._groups)
        return self._sent + cast - self._credited

    def join(self, group: CastGroup) -> None:
        self._credited += group.sent  # bytes that it was sent before this was a member
        self._groups.append(group)

    def leave(self, group: CastGroup) -> None:
        self._groups.remove(group)
        self._sent += group.sent

    def credit(self, taken: int) -> None:
        """The receiver has taken in that many bytes since it was told so last."""
        with self._room:
            self._credited += taken
            self._room.notify_all()

    def wait_for_room(self) -> None:
        """Wait until the receiver has room.

        Raises:
            BackpressureError: The receiver has had no room for `message_delivery_timeout` seconds.
        """
        if threading.get_ident() == self._hub.poller.thread_id:
            return  # the thread that reads the credits must not wait for them
        timeout = config.value("message_delivery_timeout")
        with self._room:
            made = self._room.wait_for(
                lambda: self.failure or self.outstanding <= self.window // 2, timeout
            )
        if not made:
            raise BackpressureError(
                f"{self.address} has had no room for this message for {timeout:g}s: it reads"
                f" nothing, or slower than it is sent to; {self.outstanding} bytes are on their way"
                " to it. The limits are send_buffer_limit and message_delivery_timeout."
            )


class CastGroup:
    """Processes that are called together.

    Bytes sent to all of them are counted once; credits are looked at when the window could be
    full: once for each window that is sent, not once for each call and process.
    """

    def __init__(self, peers: Sequence[RemotePeer]) -> None:
        self.sent = 0
        self.complete = True  # none of them has ended
        self._peers = peers
        self._budget = 0
        for peer in peers:
            peer.join(self)

    def count(self, frame: Frame) -> None:
        """Before the call `frame` is sent to all; waits for room where there is none."""
        size = counted(frame)
        self.sent += size
        self._budget -= size
        if self._budget < 0:
            for peer in self._peers:
                if peer.failure is None and peer.outstanding > peer.window:
                    peer.wait_for_room()
            # what may be sent before any window can be full: until then no peer is looked at
            self._budget = min(
                (peer.window - peer.outstanding for peer in self._peers if peer.failure is None),
                default=0,
            )

    def dissolve(self) -> None:
        for peer in self._peers:
            peer.leave(self)


class Inflow:
    """Messages from one process of another host, and the credit granted to it."""

    __slots__ = ("_route", "_send", "_taken", "source")

    def __init__(self, send: SendFrame, source: ProcAddress, here: ProcAddress) -> None:
        self._send = send
        self.source = source
        self._route = route_prefix(Route(source, here))
        self._taken = 0

    def took(self, size: int, answers: int = 0) -> None:
        """Count bytes that were handed to their receivers; `answers` is 1 for those of answers."""
        self._taken += size
        # not per message: a credit is a frame over the link, with a wake-up at each gateway
        if self._taken >= _CREDIT_EVERY:
            taken, self._taken = self._taken, 0
            self._send(with_prefix(Frame(CREDIT, 0, answers, 0, 0, taken, b"", b""), self._route))


class Outflow:
    """Answers to one process of another host, and the credit that it gives for them."""

    __slots__ = ("_credited", "_poller", "_room", "_sent", "_window")

    def __init__(self, hub: Hub) -> None:
        self._poller = hub.poller
        self._room = threading.Condition()
        self._window: int = max(config.value("send_buffer_limit"), 4 * _CREDIT_EVERY)
        self._sent = 0
        self._credited = 0

    def went(self, size: int) -> None:
        """An answer was sent.

        Waits, within `message_delivery_timeout`, once more than a window is on its way.
        """
        self._sent += size  # of two threads that send at once one may not be counted
        if (
            self._sent - self._credited > self._window
            and threading.get_ident() != self._poller.thread_id
        ):
            timeout = config.value("message_delivery_timeout")
            with self._room:
                self._room.wait_for(
                    lambda: self._sent - self._credited <= self._window // 2, timeout
                )

    def credit(self, taken: int | None = None) -> None:
        """The caller has taken in that many bytes; None if it has ended, and takes in no more."""
        with self._room:
            self._credited = (
                self._sent if taken is None else min(self._sent, self._credited + taken)
            )
            self._room.notify_all()


class RemoteOrigin:
    """The way back to a caller on another host.

    Args:
        send: To other hosts.
        route: That of the call.
        went: Told of each answer that was sent, with its size.
    """

    __slots__ = ("_route", "_send", "_went", "peer")

    def __init__(
        self, send: SendFrame, route: Route, went: Callable[[ProcAddress, int], None]
    ) -> None:
        self._send = send
        self._went = went
        self._route = Route(route.source, route.to, cast=route.cast)
        self.peer = route.source

    @property
    def called(self) -> ProcAddress:
        """Note the address by which this process was called."""
        return self._route.source

    def send(self, frame: Frame) -> bool:
        route = self._route
        # each cast has a route of its own
        prefix = route_prefix(route) if route.cast else _known_prefix(route)
        sent = self._send(with_prefix(frame, prefix)) is None
        if frame.kind == REPLY and not route.cast:
            self._went(self.peer, size_of(frame))
        return sent
