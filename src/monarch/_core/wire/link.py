"""One link: frames between two gateways, exactly once and in order, over streams that break.

No I/O, no clock.

A link outlives its streams. Each side numbers the frames that it sends and keeps them until they
are acknowledged; on a new stream each says how many it has received, and the missing ones are sent
again. `TABLE` says what a link does when. Only the side that dialed dials again. `link_table` keeps
the links of a process, and is the only one that uses this.

Times, with `reconnect` for `channel_reconnect_timeout` (see `link_limits`):

* A side that has sent nothing for a quarter of `reconnect` sends a ping, which is answered: the
  peer may have another `reconnect`. Any byte is a sign of life.
* No sign of life for half of it: the stream counts as broken. For all of it: the peer is lost.
* The dialer dials again at once, then after ever longer pauses, up to half a second. It does not
  wait for a dial without an answer before the next: the kernel would take a second or two to ask
  again, though the network may be back sooner. A host that has answered gets half of `reconnect`
  for the handshake: more of them at once would slow each other.
* Where nothing has listened for a quarter of `reconnect`, one second at most, the peer is lost: a
  live process listens.
* A first dial may fail for `attach` where the peer may have yet to start; for `reconnect` where it
  must be there.

`now` is time in which the own process ran (see `link_limits.RunClock`), so that no peer is blamed
for a pause of our own.

Acknowledgements ride on the next frame that is sent. Alone they cost a system call here and a
wake-up there, some 30 µs together; not to send them costs memory. So they wait for `_ACK_DELAY`,
which makes 50 a second at most, or 0.2 % of a core, and leaves a sender with the frames of 20 ms;
or until `_ACK_BYTES` have come, which is one every 4 ms at 1 GB/s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from .frame import Bytes, Frame
from .link_limits import Limits
from .link_records import (
    ACK,
    DATA,
    FAREWELL,
    JOIN,
    JOINED,
    PING,
    Hello,
    Join,
    LinkError,
    Packed,
    Record,
    control,
    data_chunks,
    greeting,
)

DIALING, GREETING, JOINING, UP, BROKEN, RESUMING, LOST, CLOSED = (
    "dialing", "greeting", "joining", "up", "broken", "resuming", "lost", "closed"
)  # fmt: skip

# state, event -> next state, actions in their order. Pairs not in it cannot occur: a link hears
# only of its own stream.
#
# due: dial now                     dial: begin to connect
# ready: the peer is authenticated  greet: say who we are
# greeted: the peer has said who    join: propose to start or go on
# joined: both agree on a stream    start: send missing frames
# cut: it is gone, or was not made  drop: let go of the stream, and of those being opened
# expired: for too long             pause: dial again, later
# failed: for good; a farewell too  part: say why, then let go of the stream
# closed: by our own side           tell: the peer is lost
TABLE: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    (DIALING, "due"): (DIALING, ("dial",)),
    (DIALING, "ready"): (GREETING, ("greet",)),
    (DIALING, "cut"): (DIALING, ("pause",)),
    (DIALING, "joined"): (UP, ("start",)),
    (DIALING, "expired"): (LOST, ("drop", "tell")),
    (DIALING, "failed"): (LOST, ("drop", "tell")),
    (DIALING, "closed"): (CLOSED, ("drop",)),
    (GREETING, "greeted"): (JOINING, ("join",)),
    (GREETING, "cut"): (DIALING, ("drop", "pause")),
    (GREETING, "joined"): (UP, ("start",)),
    (GREETING, "expired"): (LOST, ("drop", "tell")),
    (GREETING, "failed"): (LOST, ("drop", "tell")),
    (GREETING, "closed"): (CLOSED, ("drop",)),
    (JOINING, "cut"): (DIALING, ("drop", "pause")),
    (JOINING, "joined"): (UP, ("start",)),
    (JOINING, "expired"): (LOST, ("drop", "tell")),
    (JOINING, "failed"): (LOST, ("drop", "tell")),
    (JOINING, "closed"): (CLOSED, ("drop",)),
    (UP, "cut"): (BROKEN, ("drop", "pause")),
    (UP, "joined"): (UP, ("start",)),
    (UP, "failed"): (LOST, ("part", "tell")),
    (UP, "closed"): (CLOSED, ("part",)),
    (BROKEN, "due"): (BROKEN, ("dial",)),
    (BROKEN, "ready"): (RESUMING, ("greet",)),
    (BROKEN, "cut"): (BROKEN, ("pause",)),
    (BROKEN, "joined"): (UP, ("start",)),
    (BROKEN, "expired"): (LOST, ("drop", "tell")),
    (BROKEN, "failed"): (LOST, ("drop", "tell")),
    (BROKEN, "closed"): (CLOSED, ("drop",)),
    (RESUMING, "greeted"): (RESUMING, ("join",)),
    (RESUMING, "cut"): (BROKEN, ("drop", "pause")),
    (RESUMING, "joined"): (UP, ("start",)),
    (RESUMING, "expired"): (LOST, ("part", "tell")),
    (RESUMING, "failed"): (LOST, ("part", "tell")),
    (RESUMING, "closed"): (CLOSED, ("part",)),
}

_ACK_DELAY = 0.02  # seconds
_ACK_BYTES = 4 * 1024 * 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds between dials
_MOST_REFUSED = 1.0  # seconds
_NEVER = float("inf")
_WITH_STREAM = {GREETING, JOINING, UP, RESUMING}


class Owner(Protocol):
    """The environment of a link: it dials, writes, and is told."""

    limits: Limits

    def dial(self, link: Link) -> int:
        """Begin to connect; the number of the stream to be."""

    def write(self, stream: int, chunks: list[Bytes]) -> None: ...

    def cut(self, stream: int, politely: bool) -> None:
        """Let go of a stream.

        Politely: when the peer has read the last bytes written, and closed it.
        """

    def hello(self, called: str) -> Hello: ...

    def serial(self) -> int:
        """The next number for a `Join`."""

    def arm(self, link: Link) -> None:
        """Set the timer again: it may be due earlier than before."""

    def up(self, link: Link) -> None: ...

    def lost(self, link: Link, reason: str) -> None: ...


class Link:
    """See the module.

    Args:
        owner: Carries out what it decides.
        names: Under which this process knows the peer; the first is the one it is told by.
        dials: Whether this side dials; under `names[0]` then.
        uid: Random name of the link.
        starting: Whether the peer may have yet to start.

    Attributes:
        identity: The peer's process, once it is known.
        stream: The one in use, None between two.
        was_up: Whether the peer may have frames of it.
        peer_serial: The highest number of a `Join` that the peer has sent.
    """

    __slots__ = (
        "_ack_at", "_acked", "_deadline", "_dial_at", "_garbled_at", "_heard", "_now", "_opening", "_outbox", "_owed",
        "_owner", "_reason", "_refused_since", "_sent", "_starting", "_tries", "_up_since", "address", "armed", "dials",
        "identity", "names", "peer_serial", "queued", "received", "state", "stream", "uid", "was_up",
    )  # fmt: skip

    def __init__(
        self,
        owner: Owner,
        names: list[str],
        *,
        dials: bool,
        uid: str,
        now: float,
        starting: bool = True,
    ) -> None:
        self._owner = owner
        self.names = names
        self.address = names[0]
        self.dials = dials
        self.uid = uid
        self.identity: str | None = None
        self.state = DIALING
        self.stream: int | None = None
        self.was_up = False
        self.peer_serial = 0
        self.received = 0
        self.queued = 0  # bytes
        self.armed = _NEVER  # when its owner will next call `tick`
        self._opening: set[int] = set()  # streams to be
        self._outbox: deque[Packed] = deque()  # not acknowledged; the first has number `_acked` + 1
        self._acked = 0
        self._owed = 0  # bytes received and not acknowledged
        self._now = self._heard = self._sent = self._dial_at = now
        self._ack_at = _NEVER
        self._starting = starting
        self._deadline = now + self._first_patience
        self._tries = 1
        self._up_since = now
        self._refused_since: float | None = None
        self._garbled_at: int | None = None
        self._reason = "it has not answered yet"

    def __repr__(self) -> str:
        side = "dialed by us" if self.dials else "dialed by it"
        waiting = f"{len(self._outbox)} frames ({self.queued} bytes) not acknowledged"
        return (
            f"<Link to {' = '.join(self.names)}: {self.state}, {side}, {waiting}, {self.received}"
            " received>"
        )

    # events

    def send(self, packed: Packed, now: float) -> None:
        """Keep a frame until it is acknowledged, and write it if there is a stream."""
        self._outbox.append(packed)
        self.queued += packed.size
        if self.state == UP:
            self._write(data_chunks(packed, self._acked + len(self._outbox), self.received))
            self._told(now)

    def absorb(self, other: Link, now: float) -> None:
        """Take over what waits for a link to the same process that was never up."""
        for packed in other._outbox:
            self.send(packed, now)

    def due(self) -> float:
        """The time at which `tick` has something to do."""
        limits = self._owner.limits
        if self.state == UP:
            return min(self._heard + limits.silence, self._sent + limits.interval, self._ack_at)
        if self.state in _WITH_STREAM:
            return min(self._deadline, self._heard + limits.silence)
        return min(self._deadline, self._dial_at) if self.dials else self._deadline

    def tick(self, now: float) -> None:
        """Run the timers that are due."""
        limits = self._owner.limits
        if self.state in _WITH_STREAM and now >= self._heard + limits.silence:
            self.cut(f"nothing was heard from it for {limits.silence:g}s", now)
        if self.state == UP:
            if now >= self._ack_at:
                self._say(control(ACK, self.received), now)
            elif now >= self._sent + limits.interval:
                self._say(control(PING, self.received), now)
        elif now >= self._deadline:
            self._reason = self._too_long()
            self._happen("expired", now)
        elif self.dials and now >= self._dial_at:
            self._happen("due", now)

    def answered(self, stream: int, now: float) -> None:
        """The host of a stream has taken the connection; the handshake may take its time."""
        if stream in self._opening and self.was_up:
            self._dial_at = now + self._owner.limits.silence

    def ready(self, stream: int, now: float) -> None:
        """Take a stream that was being opened, and is open now."""
        self._opening.discard(stream)
        self._let_go(politely=False)
        self.stream = stream
        self._heard = now
        self._happen("ready", now)

    def greeted(self, now: float) -> None:
        """The process that it has dialed is the right one."""
        self._happen("greeted", now)

    def joined(self, stream: int, join: Join, now: float) -> None:
        """Both agree to use `stream`, which either may have dialed.

        Raises:
            LinkError: The peer counts other frames than have been sent.
        """
        self._check(join.received)
        # frames below were dropped from the outbox when they were acknowledged: they can't be sent
        # again
        if join.received < self._acked:
            raise LinkError(
                f"it has received {join.received} frames, and acknowledged {self._acked}",
                final=True,
            )
        # the peer's dial has won: from now on it is the side that dials again
        if stream != self.stream:
            self._let_go(politely=False)
            self.stream, self.dials = stream, False
        self.uid = join.link
        self.peer_serial = max(self.peer_serial, join.serial)
        self._acknowledge(join.received)
        self._happen("joined", now)

    def heard(self, now: float) -> None:
        """Bytes came."""
        self._heard = now

    def take(self, record: Record, now: float) -> Frame | None:
        """A record of a link that is up; the frame, if it brought a new one.

        Raises:
            LinkError: It makes no sense.
        """
        self._check(record.acknowledged)
        self._acknowledge(record.acknowledged)
        # else there is an answer on its way
        if record.kind == PING and now > self._sent + 2 * _ACK_DELAY:
            self._acknowledge_soon(now)
        if record.kind != DATA or record.sequence <= self.received:
            return None
        if record.sequence > self.received + 1:
            # not final: a new stream begins again at the frame that is missing
            raise LinkError(f"it sent frame {record.sequence} after {self.received}")
        frame = record.frame()
        self.received += 1
        self._owed += len(record.body) + len(record.segment)
        if self._owed >= _ACK_BYTES:
            self._say(control(ACK, self.received), now)
        else:
            self._acknowledge_soon(now)
        return frame

    def _acknowledge_soon(self, now: float) -> None:
        if self._ack_at == _NEVER:
            self._ack_at = now + _ACK_DELAY
            self._owner.arm(self)

    def ended(self, stream: int, reason: str, now: float, *, final: bool, refused: bool) -> None:
        """A stream ended or could not be opened; `final`: none can; `refused`: nothing listened."""
        self._opening.discard(stream)
        if final:
            self.failed(reason, now)
        else:
            self.cut(reason, now, refused)

    def cut(self, reason: str, now: float, refused: bool = False) -> None:
        """The stream is of no more use, or there was none; a new one may help."""
        self._reason = reason
        for_good = False
        if not refused:
            self._refused_since = None
        elif self.state == BROKEN or not (self.was_up or self._starting):
            if self._refused_since is None:
                self._refused_since = now
            for_good = now - self._refused_since >= min(_MOST_REFUSED, self._owner.limits.interval)
        self._happen("failed" if for_good else "cut", now)

    def garbled(self, error: LinkError, now: float) -> None:
        """Handle bytes that make no sense.

        A new stream gets one more chance; the same garbage again ends the link.
        """
        if error.final or self._garbled_at == self.received:
            self.failed(str(error), now)
        else:
            self._garbled_at = self.received
            self.cut(str(error), now)

    def failed(self, reason: str, now: float) -> None:
        """The link will never be up (again)."""
        self._reason = reason
        self._happen("failed", now)

    def close(self, reason: str, now: float) -> None:
        """Our own side ends."""
        self._reason = reason
        self._happen("closed", now)

    # the table, and its actions

    def _happen(self, event: str, now: float) -> None:
        self._now = now
        self.state, actions = TABLE[self.state, event]
        for action in actions:
            _ACTIONS[action](self)
        self._owner.arm(self)

    def _dial(self) -> None:
        self._opening.add(self._owner.dial(self))
        self._dial_at = self._now + self._owner.limits.interval / 2 if self.was_up else _NEVER

    def _greet(self) -> None:
        self._write([greeting(self._owner.hello(self.address))])

    def _join(self) -> None:
        self._write([control(JOIN, self.received, self._own_join())])

    def _start(self) -> None:
        """Go on where the peer stopped receiving."""
        if not self.dials:
            self._write([control(JOINED, self.received, self._own_join())])
        for number, packed in enumerate(self._outbox, self._acked + 1):
            self._write(data_chunks(packed, number, self.received))
        # the clock of silence starts anew: bytes heard before were on another stream
        self._heard = self._up_since = self._now
        self._told(self._now)
        if not self.was_up:
            self.was_up = True
            self._owner.up(self)

    def _drop(self) -> None:
        self._let_go(politely=False)

    def _part(self) -> None:
        self._write([control(FAREWELL, self.received, self._reason)])
        self._let_go(politely=True)

    def _pause(self) -> None:
        """The time of the next dial; at once if the link was up for a while."""
        limits = self._owner.limits
        if self.was_up and self._up_since < _NEVER:  # it was up until now
            # from the last sign of life, not from the break: the silence that led to it counts
            self._deadline = self._heard + limits.reconnect
            # a stream that breaks right after it came up counts as a failed try, or both sides
            # would spin
            if self._now - self._up_since >= limits.interval:
                self._tries = 0
            self._up_since = _NEVER
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._tries - 1)) if self._tries else 0.0
        self._dial_at = self._now + pause
        self._tries = min(self._tries + 1, 10)

    def _tell(self) -> None:
        self._outbox.clear()
        self.queued = 0
        self._owner.lost(self, self._reason)

    # pieces

    def _own_join(self) -> Join:
        return Join(self.uid, self.was_up, self.received, self._owner.serial())

    def _let_go(self, politely: bool) -> None:
        if self.stream is not None:
            self._owner.cut(self.stream, politely)
            self.stream = None
        for stream in self._opening:
            self._owner.cut(stream, False)
        self._opening.clear()
        self._dial_at = _NEVER

    def _write(self, chunks: list[Bytes]) -> None:
        if self.stream is not None:
            self._owner.write(self.stream, chunks)

    def _say(self, data: bytes, now: float) -> None:
        self._write([data])
        self._told(now)

    def _told(self, now: float) -> None:
        """Something was written, and all that has been received was acknowledged with it."""
        self._sent = now
        self._owed = 0
        self._ack_at = _NEVER

    def _check(self, acknowledged: int) -> None:
        if acknowledged > self._acked + len(self._outbox):
            last = self._acked + len(self._outbox)
            raise LinkError(
                f"it acknowledges frame {acknowledged}, and {last} is the last that was sent",
                final=True,
            )

    def _acknowledge(self, upto: int) -> None:
        while self._acked < upto:
            self.queued -= self._outbox.popleft().size
            self._acked += 1

    def _too_long(self) -> str:
        limits = self._owner.limits
        if self.was_up:
            return (
                f"out of contact for {limits.reconnect:g}s (channel_reconnect_timeout):"
                f" {self._reason}"
            )
        knob = "mesh_attach_config_timeout" if self._starting else "channel_reconnect_timeout"
        return f"it could not be reached for {self._first_patience:g}s ({knob}): {self._reason}"

    @property
    def _first_patience(self) -> float:
        limits = self._owner.limits
        return limits.attach if self._starting else min(limits.attach, limits.reconnect)


_ACTIONS: dict[str, Callable[[Link], None]] = {
    "dial": Link._dial, "greet": Link._greet, "join": Link._join, "start": Link._start,
    "drop": Link._drop, "part": Link._part, "pause": Link._pause, "tell": Link._tell,
}  # fmt: skip
