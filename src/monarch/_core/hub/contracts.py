"""Protocols between the parts of a process: the hub, origins of messages, receivers.

`message_hub` implements `Hub`. Everything else in this package knows the hub as this protocol only,
so that each part can be read, and tested, without it. The services that a plane uses of its process
are in it, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from ..net.connection import Connection
from ..net.poller import Poller
from ..net.segment import Segment
from ..net.traffic import TrafficLog
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import Bytes, Frame

Dispatch = Callable[[Any, Frame], None]
"""Takes a message: its `Origin`, and the frame."""

SendFrame = Callable[[Frame], "Failure | None"]
"""Sends a frame that has a route; the failure if there is no way."""


class Origin(Protocol):
    """The sender of a message, and the way back to it.

    Attributes:
        peer: Its address.
        called: The address by which a process of another host has called this one; None for a
            process of this host.
    """

    peer: ProcAddress
    called: Any

    def send(self, frame: Frame) -> bool: ...


class Receiver(Protocol):
    """The receiver of calls: an actor's cell, or the process itself."""

    def receive(self, origin: Origin, frame: Frame) -> None:
        """Called on the poller's thread (or the caller's, within one process): must not block."""


class PortSink(Protocol):
    """The receiver of values sent to a port."""

    def arrived(self, origin: Origin, frame: Frame) -> None: ...


class Outgoing(Protocol):
    """Looks at some of the messages that a process sends.

    Attributes:
        gap: Messages until the next that it looks at, that one included. The hub counts down, which
            costs no call.
    """

    gap: int

    def sent(
        self,
        procs: Sequence[ProcAddress],
        target: int,
        meta: bytes,
        content: tuple[bytes, Sequence[Bytes]],
        request: int,
        sender: int,
    ) -> None:
        """One is about to be sent.

        Sets `gap` anew. The arguments are those of `cast`, with the number of the request.
        """


class Pulse(Protocol):
    """Looks at the actors of this process once a second, while they are active.

    Attributes:
        beating: Whether it does; a thread that gets active, and sees False, calls `start`.
        hooks: Called each time, on the I/O thread.
    """

    beating: bool
    hooks: list[Callable[[], None]]

    def start(self) -> None: ...

    def serves(self, cell: Any) -> None:
        """An actor begins to take messages."""

    def since(self, uid: int, item: object) -> int | None:
        """Since when an actor handles this item of `active`, good to a second, in nanoseconds since
        1970; None: for less than that.
        """


class Request(Protocol):
    """A call that waits for replies."""

    def reply(self, frame: Frame) -> bool:
        """Take a reply; True when it was the last one."""

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        """A process is gone; True when nothing is waited for any more."""


class Way(Protocol):
    """The way to one other process: a `LocalPeer` on this host, a `RemotePeer` on another."""

    address: ProcAddress

    @property
    def failure(self) -> Failure | None:
        """Why the process is gone, if it is known to be."""

    @property
    def connection(self) -> Connection | None:
        """The connection that answers come over, if there is one."""

    @property
    def starting(self) -> bool:
        """True if the process is not reached yet, and has not ended either."""

    def send(self, frame: Frame, segment: Segment | None = None) -> Failure | None:
        """Send a frame, or keep it until it can be sent; the failure if the process is gone."""

    def end(self, failure: Failure) -> Collection[int]:
        """The process is gone. Returns the numbers of the requests that this ends."""

    def flush(self, timeout: float) -> None:
        """Write the queued frames, for a process that ends."""


class Hub(Protocol):
    """The message hub of a process, as everything else knows it.

    Attributes:
        address: This process.
        root: The client process that everything here belongs to.
        names: The names of this host.
        hosts: The hosts with processes that are reached directly.
        requests: Calls that wait for replies, by number.
        peers: The ways to other processes that were used so far.
        peer_lost_hooks: Called when a process that requests go to has ended, on any thread.
        inbound_lost_hooks: Called when a process that requests come from has ended, on the poller's
            thread.
        gateway: Takes frames with a route, where this process is its host's gateway.
        unreached: Hosts that are about to be attached.
        unattached: Hosts of a client that it uses though it has not attached them.
        ended_hosts: Hosts that are known to have ended before anybody asks for them.
    """

    address: ProcAddress
    root: ProcAddress
    names: set[str]
    hosts: set[str]
    poller: Poller
    requests: dict[int, Request]
    request_ids: Iterator[int]
    peers: dict[ProcAddress, Way]
    peer_lost_hooks: list[Callable[[ProcAddress, Failure], None]]
    inbound_lost_hooks: list[Callable[[ProcAddress], None]]
    gateway: Callable[[Connection | None, Frame], None] | None
    unreached: set[str]
    unattached: set[str]
    ended_hosts: dict[str, Failure]
    traffic: TrafficLog

    @property
    def thread(self) -> Callable[..., threading.Thread]:
        """Makes a thread for what may wait, such as an actor."""

    # messages

    def cast(
        self,
        procs: Sequence[ProcAddress],
        target: int,
        meta: bytes,
        content: tuple[bytes, Sequence[Bytes]],
        request: Request | None = None,
        sender: int = 0,
        flags: int = 0,
        ranks: Sequence[int] | None = None,
    ) -> int:
        """Send one call to the actor `target` on each of `procs`; returns the request id."""

    def dispatch(self, origin: Any, frame: Frame) -> None:
        """Hand a message of `origin` to whom it is for."""

    def not_sent(
        self, request_id: int, request: Request | None, address: ProcAddress, failure: Failure
    ) -> None:
        """A call could not be sent to one of its receivers."""

    # processes

    def local(self, address: ProcAddress) -> ProcAddress:
        """The name under which a process listens that is reached directly."""

    def connect(
        self, address: ProcAddress, on_close: Callable[[Connection, str], None]
    ) -> Connection:
        """Connect to a process of this host, and send the greeting of this one.

        Raises:
            OSError: Nothing listens there, or not at this moment.
        """

    def ask_agent(
        self, address: ProcAddress, connected: float, answer: Callable[[Failure | None], None]
    ) -> None:
        """Ask the agent of a process's host what became of it: None means that it listens."""

    def peer_for(self, address: ProcAddress, frame: Frame) -> Way:
        """The way that a frame takes to a process."""

    def process_fate(self, address: ProcAddress) -> Failure | None:
        """Why a process is gone, if it is known to be, and for good."""

    def note_end(self, address: ProcAddress, failure: Failure) -> None:
        """A process has ended that this one has never talked to."""

    def process_ended(
        self,
        address: ProcAddress,
        failure: Failure,
        witness: Way | None = None,
        ended: Collection[int] = (),
    ) -> None:
        """A process is gone: end the ways to it, tell every hook, then those who wait for it.

        On any thread.

        Args:
            witness: The way that has found out, and has ended.
            ended: Numbers of the requests that ended with it.
        """

    def tell(self, address: ProcAddress, failure: Failure, ended: Collection[int] = ()) -> None:
        """Tell every hook of an end, then these requests, then those who wait for room there."""

    def forget_peers(self, addresses: Sequence[ProcAddress], failure: Failure) -> None:
        """These processes have ended, or are about to."""

    def requester_gone(self, address: ProcAddress) -> None:
        """A process that sent requests here has ended, or lost the way."""
