"""The way to one other process: connect on first use, learn why it ended, tell everyone who waits for it.

States::

    state      event                 then
    ---------  --------------------  -------------------------------------------------------------------
    NEW        first send            connect: UP, or ASKING where nobody listens (yet, or any more)
    UP         connection lost       ASKING
    UP         other side hung up    UP, until that is read: nothing is sent any more
    ASKING     agent: "listening"    connect again (FAILED if it had been UP: the process lives, the link broke)
    ASKING     agent: it ended       FAILED, with the exit code, the signal, the last output
    FAILED     send                  answered with the failure; NEW where the process may be started again

Frames that can't be sent wait here, in order. If the process had ended, and may start again, they wait for its next
incarnation. Only what was sent to the one that has ended is answered with its end: a connection notes that (see `Asked`),
under the lock under which it writes, so a request that another thread is about to send belongs to the next one. What was
sent may have been handled, or begun, or not even been read; nobody can tell, so it is not sent again. What ends ASKING:
the agent's answer (it gives one within `pending_actor_delivery_timeout`), or the loss of the connection to the agent,
which is the failure of the host.
"""

from __future__ import annotations

import threading
import time

from ..net import unix
from ..net.asked import Asked
from ..net.connection import Connection
from ..net.segment import Segment
from ..supervision.failure import LINK, Failure, client_lost, host_lost
from ..wire.address import AGENT, ProcAddress
from ..wire.frame import ROUTED, URGENT, Frame
from .contracts import Hub, Request
from .neighbours import GONE

_REFUSED_PAUSE = 0.005  # seconds until an agent that said "it listens" is asked again
_BACKLOG_PAUSE = 0.005  # seconds until the peer may have accepted some of those who wait
_SHORTAGE_PAUSE = 0.1  # seconds until this process may have descriptors, or memory, again
NEW, UP, ASKING, FAILED = "new", "up", "asking", "failed"


class Peer:
    """A process that this process sends requests to."""

    __slots__ = (
        "_asked", "_connected", "_hub", "_inquiry", "_lock", "_state", "_waiting", "address", "connection", "failure",
    )  # fmt: skip

    def __init__(self, hub: Hub, address: ProcAddress) -> None:
        self._hub = hub
        self.address = address
        self._lock = threading.Lock()
        self._state = NEW
        self._connected = 0.0  # when the last connection was begun; 0 if there was none to this incarnation
        self._inquiry = 0  # number of the last question to the agent
        self.connection: Connection | None = None  # where requests go, and replies come from; None unless it is up
        self._asked: Asked | None = None  # what was sent over the last connection
        self._waiting: list[tuple[Frame, Segment | None]] = []
        self.failure: Failure | None = None

    def send(self, frame: Frame, segment: Segment | None = None) -> Failure | None:
        """Send, or keep the frame until the way is clear; the failure if the process is gone."""
        connection = self.connection
        if connection is not None and connection.send(frame, segment):
            return None
        with self._lock:
            if self.failure is not None and self.failure.restarts:
                self._await_restart()
            if self._state == NEW:
                self.connection = self._connect()
            if self._state == FAILED:
                return self.failure
            connection = self.connection
            if connection is None or not connection.writable:  # whoever reads it is about to hear of that
                self._waiting.append((_own_buffers(frame, segment), segment))
                return None
        return None if connection.send(frame, segment) else self.send(frame, segment)

    @property
    def starting(self) -> bool:
        """Whether it has not been reached yet, though it has not ended either."""
        return self.connection is None and self._state != FAILED

    def close(self) -> None:
        with self._lock:
            connection, self.connection = self.connection, None
            self._waiting.clear()
        if connection is not None:
            connection.close()

    def flush(self, timeout: float) -> None:
        connection = self.connection
        if connection is not None:
            connection.flush(timeout)

    def end(self, failure: Failure, inquiry: int = 0) -> list[tuple[int, Request]] | None:
        """The process is gone, or the way to it. Returns the requests that this ends; None if it was no news.

        Args:
            inquiry: Number of the question that this answers; 0 for what was heard otherwise, which may come late.
        """
        with self._lock:
            if self._overtaken(inquiry) if inquiry else self._outlives(failure):
                return None
            if self._state == FAILED:
                if self.failure is not None and self.failure.restarts:  # it may be given up by now
                    self.failure = failure
                return None
            kept = self._for_the_next() if failure.restarts and self._connected else []
            unsent, self._waiting = self._waiting, kept
            asked, self._asked = self._asked, None
            self._state = FAILED
            self.failure = failure
            connection, self.connection = self.connection, None
            if kept:
                self._await_restart()
                self._state = ASKING
                self._hub.poller.call_soon(self._reconnect)
        if connection is not None:
            connection.close()  # first: whoever is about to write to it turns to the next one, or has been noted
        ended = {frame.request for frame, _ in unsent} - {frame.request for frame, _ in kept}
        if asked is not None:
            ended.update(asked.numbers())
        # below 0 is who waits for room: nothing was sent for that
        return [one for one in list(self._hub.requests.items()) if one[0] in ended or one[0] < 0]

    # with the lock held

    def _overtaken(self, inquiry: int) -> bool:
        """Whether something else has happened since the agent was asked."""
        return inquiry != self._inquiry or self._state != ASKING

    def _outlives(self, failure: Failure) -> bool:
        """Whether news is late: the next incarnation is awaited already, or here."""
        awaited = self._state in (NEW, ASKING) and not self._connected
        return failure.restarts and (awaited or 0 < failure.known <= self._connected)

    def _for_the_next(self) -> list[tuple[Frame, Segment | None]]:
        """What waits, and can for the next incarnation: not what was about this one, nor what another host has sent, where it
        fails."""
        return [(frame, segment) for frame, segment in self._waiting if not frame.flags & (URGENT | ROUTED)]

    def _await_restart(self) -> None:
        self.failure = None
        self._connected = 0.0
        self._inquiry += 1  # an answer that is still to come is about the incarnation before
        self._state = NEW

    def _connect(self) -> Connection | None:
        begun = time.monotonic()
        try:
            sock = unix.connect(self._hub.local(self.address))
        except OSError as error:
            again, self._state = self._state == ASKING, ASKING
            if isinstance(error, ConnectionRefusedError):  # not there yet, or gone
                # refused although its agent says that it listens: it has just died, and the agent is about to know
                self._hub.poller.call_later(_REFUSED_PAUSE if again else 0.0, self._ask)
            else:
                delay = _BACKLOG_PAUSE if isinstance(error, BlockingIOError) else _SHORTAGE_PAUSE
                self._hub.poller.call_later(delay, self._reconnect)
            return None
        connection = self._hub.adopt(sock, self.address, self._lost)
        connection.send(self._hub.hello)
        self._state = UP
        self._asked = connection.asked
        self._connected = begun
        return connection

    # on the poller's thread

    def _lost(self, connection: Connection, reason: str) -> None:
        with self._lock:
            if connection is not self.connection:  # late news: there is another one by now, or the end is known
                return
            self._state = ASKING
            self.connection = None
            self._inquiry += 1
        if connection.parting:
            self._broke(self._inquiry, f": {connection.parting}")
        else:
            self._ask()

    def _ask(self) -> None:
        if self.address.proc == AGENT:
            failure = self._hub.ended_hosts.get(self.address.host) or host_lost(str(self.address), self._why())
            self._hub.process_ended(self.address, failure)
        elif self.address.is_client:
            self._hub.process_ended(self.address, client_lost(str(self.address)))
        else:
            with self._lock:
                self._inquiry += 1
                inquiry = self._inquiry
            self._hub.ask_agent(self.address, self._connected, lambda failure: self._answered(inquiry, failure))

    def _why(self) -> str:
        """Why an agent is gone, as far as can be known: that of this host is nobody's but its client's."""
        return "" if self.address.host in self._hub.names else GONE

    def _answered(self, inquiry: int, failure: Failure | None) -> None:
        if self._overtaken(inquiry):
            return
        if failure is not None:
            self._hub.process_ended(self.address, failure, self, inquiry)
        elif self._connected:
            self._broke(inquiry)
        else:  # not here: this may be a thread of the program that reads answers, and sending may block
            self._hub.poller.call_here_or_soon(self._reconnect)

    def _broke(self, inquiry: int, why: str = "") -> None:
        broken = Failure(LINK, f"the connection to the process broke although it runs{why}", proc=self.address.proc)
        told = self.end(broken, inquiry)
        if told is not None:
            self._hub.tell(self.address, broken, told)

    def _reconnect(self) -> None:
        with self._lock:
            if self._state != ASKING:
                return
            connection = self._connect()
            if connection is not None:
                # if it has hung up already, the rest waits on
                self._waiting = [one for one in self._waiting if not connection.send(*one)]
                self.connection = connection  # only now: other threads' sends must not overtake


def _own_buffers(frame: Frame, segment: Segment | None) -> Frame:
    """A frame that the caller's later writes cannot change."""
    if segment is not None or not frame.buffers:
        return frame
    return frame._replace(buffers=[bytearray(buffer) for buffer in frame.buffers])
