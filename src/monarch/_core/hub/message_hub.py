"""The message hub of one process: who is here, who waits for what, and the ways to all other
processes.

One per process. Its poller has one thread: the main one of a proc or agent, a daemon of the client.

Path of a call: `MessageHub.cast` (caller's thread) → socket → `dispatch` (receiver's poller) → the
actor's mailbox. Path of a reply: the actor's thread writes to the connection that the call came on
→ `dispatch` (caller's thread, if it waits for this, otherwise its poller) → `Request.reply`, which
wakes the waiting thread. Two thread switches per direction at most, one syscall to send.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ... import config
from ...errors import BackpressureError
from ..calls.failed_call import Reply
from ..calls.message import answer_to
from ..calls.waits import Detector
from ..net import unix
from ..net.asked import Asked
from ..net.connection import CloseHandler, Connection, FrameHandler
from ..net.group import Group
from ..net.loan import Readiness
from ..net.poller import Poller
from ..net.segment_pool import SegmentPool
from ..net.traffic import TrafficLog
from ..supervision.failure import STOPPED, Failure
from ..wire import pickling
from ..wire.address import AGENT, ActorAddress, ProcAddress
from ..wire.frame import (
    AROUND,
    CALL,
    CANCEL,
    CREDIT,
    DEAD,
    GONE,
    PAUSE,
    PORT,
    PRINTED,
    REPLY,
    ROUTED,
    STANDING,
    URGENT,
    Bytes,
    Frame,
    new_frame,
)
from . import prints
from .actor_table import ActorTable
from .backpressure_gate import BackpressureGates
from .contracts import Origin, Outgoing, PortSink, Pulse, Receiver, Request, Way
from .control import ask_one
from .control_records import ResolveProc
from .inbound import Inbound, hello
from .local_peer import LocalOrigin, LocalPeer, own_copy
from .multicast import write_to_each
from .neighbours import Neighbours
from .open_response import OpenResponse
from .overdue import Overdue
from .peers import Peers

if TYPE_CHECKING:
    from .remote_router import RemoteRouter

_ASIDE = ROUTED | PRINTED
_LAST_WORDS = 1.0  # seconds in which a process that ends may still write what it owes


class MessageHub(Peers):
    """The message hub of one process: local receivers, open requests, the way to other processes.

    Args:
        address: This process.
        root: The client process that everything here belongs to.
        listener: Already listening under the address's name; None where `listen` makes one later.
        local_host: The name of the host in the names of its sockets, where others call it
            differently; by default the same.
    """

    detector: Detector  # set by the `ProcService` of a process that runs actors, as is `pulse`
    pulse: Pulse
    outgoing: Outgoing | None = None  # looks at a sample of the messages that are sent
    thread = staticmethod(partial(threading.Thread, daemon=True))  # makes those that run actors
    queue: Callable[[], Any] = SimpleQueue  # makes what such threads wait at
    in_process = False  # it is one of several in a process: for tests

    def __init__(
        self,
        address: ProcAddress,
        root: ProcAddress,
        listener: socket.socket | None = None,
        local_host: str = "",
    ) -> None:
        super().__init__(address, root)
        self._local_host = local_host or address.host
        self._open(listener)
        self.segments = SegmentPool(self.poller.call_later)
        self.traffic = TrafficLog()
        self.actors = ActorTable(address, self.poller, self.refuse)
        self.ports: dict[int, PortSink] = {}
        self._hello = hello(address)
        self.neighbours = Neighbours(self)
        # where this process is it
        self.gateway: Callable[[Connection | None, Frame], None] | None = None
        self._others: RemoteRouter | None = None
        self.open_responses: dict[tuple[ProcAddress, int, int], OpenResponse] = {}
        self.inbound_lost_hooks: list[Callable[[ProcAddress], None]] = []
        self.full = BackpressureGates(self)
        self.overdue = Overdue(self)
        self.local_origin = LocalOrigin(address, self.dispatch)
        self.request_ids: Iterator[int] = itertools.count(_first_id())
        self.port_ids = itertools.count(_first_id())
        # told who had printed something before a message
        self.printed: Callable[[ProcAddress], None] = prints.pass_on
        self._largest: int = config.value("codec_max_frame_length")
        self._limits = {
            "limit": self._largest + AROUND,
            "send_limit": config.value("send_buffer_limit"),
            "send_timeout": config.value("message_delivery_timeout"),
        }

    def _open(self, listener: socket.socket | None) -> None:
        self.poller = Poller()
        # the connections that requests go out over, and answers come back
        self.answers = Group(self.poller)
        self._inbound = Inbound(self.poller, self._serve, self.dispatch, self.requester_gone)
        self._opening = threading.Lock()
        if listener is not None:
            self._inbound.open(listener)

    def listen(self) -> None:
        """Listen under the address's name: a client does once there is an agent, which removes what
        it leaves if it is killed, or before it first speaks to a process of another's.
        """
        if self._inbound.is_open:
            return
        with self._opening:
            if not self._inbound.is_open:
                self._inbound.open(unix.listen(self.local(self.address)))

    @property
    def others(self) -> RemoteRouter:
        """The way to other hosts.

        Made, and imported, when there is one: most programs start on one machine.
        """
        if self._others is None:
            from .remote_router import RemoteRouter

            with self._lock:
                self._others = self._others or RemoteRouter(self)
        return self._others

    def local(self, address: ProcAddress) -> ProcAddress:
        """The name under which a process listens that is reached directly."""
        return (
            ProcAddress(self._local_host, address.proc) if address.host in self.names else address
        )

    # sending

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
        """Send one call to the actor `target` on each of `procs`, in order; returns the request id.

        Args:
            content: Pickle and buffers, as `pickling.dumps` gives them; written once however many
                receive it.
            request: Gets a reply, or a failure, for each rank; None for one-way messages.
            ranks: Rank that each message carries; by default its index.

        Raises:
            ValueError: The message is larger than ``codec_max_frame_length``.
            BackpressureError: An actor had no room for it for `message_delivery_timeout` seconds:
                nothing was sent. Or a process did not read for so long: nothing was sent to it, nor
                to those after it.
        """
        payload, buffers = content
        self.check_size(payload, buffers)
        if self.full and not flags & URGENT:
            self.full.wait(procs, target)
        request_id = 0
        if request is not None:
            request_id = next(self.request_ids)
            # before anything is sent: another thread may read the answer before this one returns
            self.requests[request_id] = request
            if not self.overdue.watching:
                self.overdue.watch(request)
        if (outgoing := self.outgoing) is not None:
            outgoing.gap -= 1
            if outgoing.gap <= 0:  # threads that count at once may step over zero
                outgoing.sent(procs, target, meta, content, request_id, sender)
        several = len(procs) > 1
        numbered: Iterable[tuple[int, ProcAddress]] = (
            enumerate(procs) if ranks is None else zip(ranks, procs, strict=True)
        )
        if several and not buffers and not flags & URGENT:
            call = Frame(CALL, flags, 0, target, sender, request_id, meta, payload)
            numbered = write_to_each(
                self.peers, numbered, call, self.answers if request is not None else None
            )
        # one copy of large buffers for all processes of this host, which map it
        segment = self.segments.make(buffers) if buffers and several else None
        hosts, far = self.hosts, False
        for rank, address in numbered:
            if (
                address.host not in hosts
                and (several or flags & STANDING)
                and not self.neighbours.include(address)
            ):
                far = True  # goes with those of all other hosts, as one cast over their tree
                continue
            frame = new_frame(
                (CALL, flags, rank, target, sender, request_id, meta, payload, buffers)
            )
            if address == self.address:
                self.dispatch(self.local_origin, own_copy(frame))
                continue
            try:
                failure = self.peer_for(address, frame).send(frame, segment)
            except BackpressureError:
                self.requests.pop(request_id, None)  # the answers will not be read
                raise
            if failure is not None:
                self.not_sent(request_id, request, address, failure)
        if far:
            frame = Frame(CALL, flags, 0, target, sender, request_id, meta, payload, buffers)
            self.others.cast(procs, ranks, frame, request)
        return request_id

    def not_sent(
        self, request_id: int, request: Request | None, address: ProcAddress, failure: Failure
    ) -> None:
        if request is not None and request.peer_failed(address, failure):
            self.requests.pop(request_id, None)

    def check_size(self, payload: Bytes, buffers: Sequence[Bytes]) -> None:
        """Refuse a message that is too large.

        Raises:
            ValueError: The message is larger than ``codec_max_frame_length``.
        """
        size = len(payload) + sum(map(len, buffers)) if buffers else len(payload)
        if size > self._largest:
            raise ValueError(
                f"a message of {size} bytes is over the limit of {self._largest} bytes; raise it"
                " with configure(codec_max_frame_length=...) before any proc starts"
            )

    def send_to(self, address: ProcAddress, frame: Frame) -> Failure | None:
        """Send a frame that is not a call: a reply through a stored port, a value to a port."""
        if frame.kind == REPLY:
            self.open_responses.pop((address, frame.request, frame.rank), None)
        if address == self.address:
            self.dispatch(self.local_origin, own_copy(frame))
            return None
        return self.peer_for(address, frame).send(frame)

    def cancel(self, number: int, actor: int, procs: Iterable[tuple[int, ProcAddress]]) -> bool:
        """Have a call dropped by the actors that have not begun with it.

        The word follows the call on its way, so that it finds it there; one that has begun does not
        hear of it. Dropped calls are answered as such.

        Args:
            number: Of the request.
            actor: Id of the actors that were called.
            procs: Where they are, with the rank of each.
        """
        for rank, address in procs:
            self.send_to(address, Frame(CALL, CANCEL, rank, actor, 0, number, b"", b""))
        return True

    def refuse(self, origin: Origin, frame: Frame, failure: Failure) -> None:
        """Answer a call that no actor will handle."""
        content, _ = pickling.dumps(failure)
        with suppress(BackpressureError):  # it is queued, for when the caller reads
            origin.send(answer_to(frame, DEAD, content))

    def refuse_open_responses(self, uid: int, failure: Failure) -> None:
        """An actor has ended: answer the calls that it left with unanswered response ports."""
        for key, call in list(self.open_responses.items()):
            if call.uid == uid and self.open_responses.pop(key, None) is not None:
                self.refuse(call.origin, call.frame, failure)

    # actors

    def register(self, uid: int, receiver: Receiver) -> None:
        """An actor is ready to take calls; those that came before it are handed over, in order."""
        self.actors.register(uid, receiver)

    def fate(self, address: ProcAddress, uid: int) -> Failure | None:
        """Why an actor is gone, if it is known to be, and for good."""
        failure = self.process_fate(address) or self.actors.fate(address, uid)
        return None if failure is None or failure.restarts else failure

    # peers

    def connect(
        self, address: ProcAddress, on_close: Callable[[Connection, str], None]
    ) -> Connection:
        """Connect to a process of this host, and send the greeting of this one.

        Raises:
            OSError: Nothing listens there, or not at this moment.
        """
        self.listen()  # for answers, and messages to ports of this process
        sock = unix.connect(self.local(address))
        connection = self._serve(sock, self.dispatch, on_close, self.answers, Asked(self.requests))
        connection.peer = address
        connection.send(self._hello)
        return connection

    def _serve(
        self, sock: socket.socket, on_frame: FrameHandler, on_close: CloseHandler,
        watch: Readiness | None = None, asked: Asked | None = None,
    ) -> Connection:  # fmt: skip
        return Connection(
            watch or self.poller, sock, on_frame, on_close, asked=asked, segments=self.segments, log=self.traffic,
            **self._limits,
        )  # fmt: skip

    def ask_agent(
        self, address: ProcAddress, connected: float, answer: Callable[[Failure | None], None]
    ) -> None:
        """Ask the agent of a process's host what became of it: None means that it listens.

        An end is told after the last messages of the ended process, which may wait to be read.

        Args:
            connected: When the connection to it that broke was made (`time.monotonic`); 0 if there
                was none.
        """
        agent = self.address if self.address.proc == AGENT else address.agent

        def told(reply: Reply) -> None:
            # an agent that has ended takes the process with it
            end = reply if isinstance(reply, Failure) else pickling.loads(reply.payload)
            if end is None:
                answer(None)
            else:
                self.poller.call_when_read(lambda: answer(end))

        ask_one(self, agent, ResolveProc(address.proc, connected), told)

    def _way_to(self, address: ProcAddress) -> Way:
        return LocalPeer(self, address) if address.host in self.hosts else self.others.peer(address)

    def close(self, failure: Failure) -> None:
        """Write queued frames, close every connection, and answer pending calls with `failure`."""
        self.end = failure
        self._inbound.shut(_LAST_WORDS)
        for peer in self._all_peers():
            peer.flush(_LAST_WORDS)
            peer.end(failure)
        self._inbound.close()
        for request_id, request in list(self.requests.items()):
            for address in [self.address, *self.peers]:
                request.peer_failed(address, failure)
            self.requests.pop(request_id, None)
        self.answers.close()
        self.segments.forget()

    def abandon(self) -> None:
        """Let go of every descriptor in a forked child, and send nothing."""
        self.end = Failure(STOPPED, "it is that of the process which has forked this one")
        for receiver in self.actors.values():
            getattr(receiver, "abandon", lambda: None)()
        for connection in [peer.connection for peer in self._all_peers()]:
            if connection is not None:
                connection.abandon()
        self._inbound.abandon()
        self.segments.forget()
        self.answers.abandon()
        self.poller.close()

    # receiving, on the poller's thread

    def requester_gone(self, address: ProcAddress) -> None:
        """A process that sent requests here has ended, or lost the way."""
        for key in list(self.open_responses):  # other threads add to it, and take out
            if key[0] == address:
                self.open_responses.pop(key, None)
        for hook in self.inbound_lost_hooks:
            hook(address)

    def dispatch(self, origin: Any, frame: Frame) -> None:
        """Hand on a message of `origin`, an `Origin`: a `Connection` if the message has a route."""
        kind = frame.kind
        # one test for the rare cases; then the kinds, the most frequent first
        if frame.flags & _ASIDE:
            self._aside(origin, frame)
        elif kind == CALL:
            receiver = self.actors.get(frame.target)
            if receiver is not None:
                receiver.receive(origin, frame)
            else:
                self.actors.unknown(origin, frame)
        elif kind == REPLY:
            if frame.flags == DEAD:
                self._learn_fate(origin, frame)
            request = self.requests.get(frame.request)
            if request is not None and request.reply(frame):
                self.requests.pop(frame.request, None)
        elif kind == PORT:
            sink = self.ports.get(frame.target)
            if sink is not None:  # a port may be closed while values are on their way to it
                sink.arrived(origin, frame)
        elif kind == PAUSE:
            self.full.heard(origin.peer, frame)
        elif kind == CREDIT:
            origin.credit(frame.request)
        elif kind == GONE:
            origin.parting = frame.meta.decode(errors="replace")

    def _aside(self, origin: Any, frame: Frame) -> None:
        """Handle a frame that has a route, or comes after output of its sender."""
        if not frame.flags & ROUTED:
            self.printed(origin.peer)
            self.dispatch(origin, frame._replace(flags=frame.flags & ~PRINTED))
        elif self.gateway is not None:
            self.gateway(origin, frame)
        else:
            self.others.arrived(frame, asks=origin in self._inbound)

    def _learn_fate(self, origin: Origin, frame: Frame) -> None:
        failure = pickling.loads(frame.payload)
        if origin.peer != self.address:
            self.actors.remember(origin.peer, frame.target, failure)
        if not frame.request:  # a one-way message without a receiver: its sender may want to know
            undeliverable = getattr(self.actors.get(frame.sender), "undeliverable", None)
            if undeliverable is not None:
                undeliverable(ActorAddress(origin.peer, frame.target), failure)


def _first_id() -> int:
    """The first id, another in each process, so that no id means anything to the next one."""
    return int.from_bytes(os.urandom(5), "big") << 20 | 1
