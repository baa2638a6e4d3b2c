"""The way to another local process: connect on first use, learn and tell why it ended.

Its `Lifecycle` decides what to do when; this does it. A death goes one way: the evidence, which is
the loss of the connection (`_lost`), the agent's answer (`_answered`) or news from elsewhere
(`end`); the lifecycle; `Hub.process_ended`, which tells hooks and requests.

Frames that can't be sent wait here, in order. If the process had ended, and may start again, they
wait for its next incarnation. Only requests sent to the ended process are answered with its end: a
connection notes that (see `Asked`), under the lock under which it writes, so a request that another
thread is about to send belongs to the next one. A request may have been handled, or begun, or not
even been read; that is unknown, so it is not sent again. What ends the wait: the agent's answer (it
gives one within `pending_actor_delivery_timeout`), or the loss of the connection to the agent,
which is the failure of the host.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection

from ... import config
from ...errors import BackpressureError
from ..net.asked import Asked
from ..net.connection import Connection
from ..net.segment import Segment
from ..supervision.failure import Failure, client_lost, host_lost
from ..wire.address import AGENT, SYSTEM, ProcAddress
from ..wire.frame import ROUTED, URGENT, Frame
from .contracts import Dispatch, Hub
from .lifecycle import BROKEN, ENDED, STARTING, Instructions, Lifecycle
from .neighbours import GONE
from .pressure import counted

_PAUSES = {  # instruction -> event after the pause, seconds
    "ask_soon": ("inquire", 0.0),
    "ask_later": ("inquire", 0.005),
    "connect_soon": ("retry", 0.0),
    "connect_later": ("retry", 0.005),
    "connect_at_length": ("retry", 0.1),
}


class LocalPeer:
    """A process that this process sends requests to."""

    __slots__ = ("_asked", "_backlog", "_hub", "_life", "_lock", "address", "connection")

    def __init__(self, hub: Hub, address: ProcAddress) -> None:
        self._hub = hub
        self.address = address
        self._lock = threading.Lock()
        self._life = Lifecycle(address.proc)
        # where requests go, and replies come from; None unless it is up
        self.connection: Connection | None = None
        self._asked: Asked | None = None  # requests sent over the last connection
        self._backlog = Backlog(address, self._lock)  # waiting frames

    def send(self, frame: Frame, segment: Segment | None = None) -> Failure | None:
        """Send, or keep the frame until the way is clear; the failure if the process is gone.

        Raises:
            BackpressureError: The process does not read, or does not start, and too much waits for
                it.
        """
        connection = self.connection
        if connection is not None and connection.send(frame, segment):
            return None
        with self._lock:
            self._do(self._life.happen("wanted"))
            if self._life.state == ENDED:
                return self._life.failure
            connection = self.connection
            # the thread that reads it is about to hear of that
            if connection is None or not connection.writable:
                self._backlog.add(
                    frame, segment, threading.get_ident() != self._hub.poller.thread_id
                )
                return None
        # out of the lock, which `send` of a connection may hold up for as long as its queue is
        # full; if it breaks meanwhile, the lifecycle decides anew
        return None if connection.send(frame, segment) else self.send(frame, segment)

    @property
    def failure(self) -> Failure | None:
        """Why nothing can be sent any more."""
        return self._life.failure

    @property
    def starting(self) -> bool:
        """True if the process is not reached yet, and has not ended either."""
        return self._life.state in (STARTING, BROKEN)

    def flush(self, timeout: float) -> None:
        connection = self.connection
        if connection is not None:
            connection.flush(timeout)

    # events

    def end(self, failure: Failure) -> Collection[int]:
        """Another process tells that this one is gone.

        Returns the numbers of the requests that this ends.
        """
        with self._lock:
            return self._do(self._life.heard(failure))

    def _lost(self, connection: Connection, reason: str) -> None:
        self._happen(lambda: self._cut(connection))

    def _answered(self, number: int, failure: Failure | None) -> None:
        self._happen(lambda: self._life.answered(number, failure), failure)

    def _happen(self, decide: Callable[[], Instructions], failure: Failure | None = None) -> None:
        """Have the lifecycle decide, do what follows here, then tell others.

        Args:
            failure: The end that the event tells of, if any.
        """
        life = self._life
        with self._lock:
            instructions = decide()
            ended = self._do(instructions)
            number, connected, failure = life.awaited, life.connected, failure or life.failure
        if "ask" in instructions:
            self._ask(number, connected)
        elif failure is not None and "report" in instructions:
            self._hub.process_ended(self.address, failure, self, ended)
        elif failure is not None and "part" in instructions:
            self._hub.tell(self.address, failure, ended)

    def _ask(self, number: int, connected: float) -> None:
        if self.address.proc == AGENT:  # that of this host belongs to its client alone
            own = self.address.host in self._hub.names
            lost = host_lost(str(self.address), "" if own else GONE)
            lost = lost._replace(restarts=own and not connected)  # a client starts it on first use
            self._answered(number, self._hub.ended_hosts.get(self.address.host) or lost)
        elif self.address.is_client:
            self._answered(number, client_lost(str(self.address)))
        else:
            self._hub.ask_agent(self.address, connected, functools.partial(self._answered, number))

    # with the lock held

    def _cut(self, connection: Connection) -> Instructions:
        # late news: there is another one by now, or the end is known
        if connection is not self.connection:
            return ()
        self.connection = None
        return self._life.cut(connection.parting)

    def _do(self, instructions: Instructions) -> Collection[int]:
        """Do what this process can do alone.

        Returns the numbers of the requests that end.
        """
        ended: Collection[int] = ()
        for instruction in instructions:
            if instruction == "connect":
                self._connect()
            elif instruction == "end":
                ended = self._let_go(self._backlog.drop())
            elif instruction == "turn":
                ended = self._let_go(self._backlog.drop_all_but_what_can_wait())
            elif instruction in _PAUSES:
                event, pause = _PAUSES[instruction]
                over = functools.partial(self._life.paused, self._life.awaited, event)
                go_on = functools.partial(self._happen, over)
                if pause:
                    self._hub.poller.call_later(pause, go_on)
                else:
                    self._hub.poller.call_soon(go_on)
        return ended

    def _connect(self) -> None:
        begun = time.monotonic()
        try:
            connection = self._hub.connect(self.address, self._lost)
        except ConnectionRefusedError:
            self._do(self._life.happen("refused"))
        except BlockingIOError:
            self._do(self._life.happen("busy"))
        except OSError:
            self._do(self._life.happen("short"))
        else:
            self._life.reached(begun)
            self._asked = connection.asked
            self._backlog.write(connection.send)  # flush
            self.connection = connection  # only now: other threads' sends must not overtake

    def _let_go(self, ended: set[int]) -> Collection[int]:
        """Let go of the connection.

        Returns the numbers of requests that were not sent, and end, with those that were.
        """
        connection, self.connection = self.connection, None
        if connection is not None:
            # first: a thread about to write to it turns to the next one, or has been noted
            connection.close()
        if self._asked is not None:
            ended.update(self._asked.numbers())
            self._asked = None
        if len(self._backlog):
            self._do(self._life.happen("kept"))
        return sorted(ended)


class Backlog:
    """Frames that wait for a process to be reached, in order, and the senders that wait because
    they are too many.

    It has the bounds of a connection's queue: a thread that has made it longer than
    `send_buffer_limit` waits. What ends that wait: the process is reached, or has ended, or
    `message_delivery_timeout` passes.

    All is called with the lock of its `LocalPeer` held.

    Args:
        address: The process.
        lock: That lock; free while a thread waits here.
    """

    __slots__ = ("_address", "_bytes", "_frames", "_room")

    def __init__(self, address: ProcAddress, lock: threading.Lock) -> None:
        self._address = address
        self._room = threading.Condition(lock)
        self._frames: list[tuple[Frame, Segment | None]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: Frame, segment: Segment | None, may_wait: bool) -> None:
        """Keep a frame; wait for room, if the thread may and the frame is one that waits.

        Raises:
            BackpressureError: There was none for `message_delivery_timeout` seconds. The frame is
                kept.
        """
        size = counted(frame)
        # a copy: the sender may write to its buffers once `send` has returned
        self._frames.append((frame if segment is not None else own_copy(frame), segment))
        self._bytes += size
        limit: int = config.value("send_buffer_limit")
        alone = len(self._frames) == 1  # kept, however large
        if not size or not may_wait or self._bytes <= limit or alone or frame.target == SYSTEM:
            # messages to the process itself start actors: their number is bounded by the program
            return
        timeout: float = config.value("message_delivery_timeout")
        if not self._room.wait_for(lambda: self._bytes <= limit // 2, timeout):
            raise BackpressureError(
                f"{self._address} could not be reached for {timeout:g}s; {self._bytes} bytes wait"
                " for it to start. The limits are send_buffer_limit and message_delivery_timeout."
            )

    def write(self, send: Callable[[Frame, Segment | None], bool]) -> None:
        """Send the waiting frames. Those that can't be sent, as the process has hung up already,
        wait on.
        """
        self._replace([one for one in self._frames if not send(*one)])

    def drop(self) -> set[int]:
        """Let go of all. Returns the numbers of their requests."""
        return self._replace([])

    def drop_all_but_what_can_wait(self) -> set[int]:
        """Let go of messages that are not for the next incarnation, and return their requests.

        Urgent ones were about this incarnation; those of another host fail there.
        """
        return self._replace([one for one in self._frames if not one[0].flags & (URGENT | ROUTED)])

    def _replace(self, kept: list[tuple[Frame, Segment | None]]) -> set[int]:
        if not self._frames:  # as mostly
            return set()
        left, self._frames = self._frames, kept
        self._bytes = sum(counted(frame) for frame, _ in kept)
        self._room.notify_all()
        return {frame.request for frame, _ in left} - {frame.request for frame, _ in kept}


class LocalOrigin:
    """The way back to a caller in the same process.

    Args:
        address: This process.
        dispatch: Hands on the answers.
    """

    called = None

    def __init__(self, address: ProcAddress, dispatch: Dispatch) -> None:
        self.peer = address
        self._dispatch = dispatch

    def send(self, frame: Frame) -> bool:
        self._dispatch(self, own_copy(frame))
        return True


def own_copy(frame: Frame) -> Frame:
    """A frame with buffers that later writes of the sender cannot change, as if they had crossed a
    socket.
    """
    if not frame.buffers:
        return frame
    return frame._replace(buffers=[bytearray(buffer) for buffer in frame.buffers])
