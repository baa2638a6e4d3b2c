"""The links of a gateway: `wire.link_table`, bound to streams, the clock and the poller.

Everything happens on the poller's thread. `send` may be used on any; messages of other threads are
passed on to that one, in order. What ends a link's waits is in `wire.link`; this module waits only
in `close`, for as long as it is told.

Cost of a message on an idle link: it is written by the poller's thread at once, in one system call;
buffers are written from their own memory. On the other side one read, one copy of a small message;
a large frame is read straight into memory of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ... import config
from ..._lazy import counted_logger, note
from ...errors import AddressError
from ..wire.channel import Channel, parse_channel
from ..wire.frame import AROUND, Frame, FrameError
from ..wire.link_limits import Limits, RunClock
from ..wire.link_records import Packed
from ..wire.link_table import Called, Cut, Deliver, Dial, Instruction, LinkTable, Lost, Up, Write
from .dial import NOTHING_LISTENS, connect
from .flow import ByteStream
from .listener import Listener, listen
from .poller import Poller, Timer
from .trust import Trust

_SHORTEST = 0.2  # seconds; with less, a busy process is taken for a dead one

logger = counted_logger("monarch.net")


class LinkHandler(Protocol):
    """Callbacks of links, on the poller's thread. `host` is the local name of the peer."""

    def frame_from(self, host: str, frame: Frame) -> None:
        """Exactly once, in the order in which they were sent."""

    def link_up(self, host: str) -> None:
        """A link is up for the first time; called once for each name that the peer is known by."""

    def link_lost(self, host: str, reason: str) -> None:
        """A link is lost for good, maybe with unacknowledged frames; a send starts a new one."""

    def called(self, name: str) -> None:
        """A peer has dialed us under this name."""


class Links:
    """One logical link per peer; dialed when first needed, and again when it breaks.

    Args:
        poller: Its thread does the work.
        identity: Random name of this process.
        name: Gives the name of its host; called at each greeting.
        trust: Who is let in, and how we prove who we are, unless `use_trust` says otherwise;
            None: no host is let in, and no host is dialed.
        handler: Is told what comes.
    """

    def __init__(
        self,
        poller: Poller,
        identity: str,
        name: Callable[[], str],
        trust: Trust | None,
        handler: LinkHandler,
    ) -> None:
        self._poller = poller
        self._trust = trust
        self._trust_for: dict[str, Trust] = {}
        self._handler = handler
        limits = _limits()
        self._table = LinkTable(identity, name, limits)
        self._step = limits.look
        self._clock = RunClock(2 * self._step, time.monotonic())
        self._streams: dict[int, ByteStream] = {}
        self._listeners: list[Listener] = []
        self._timer: Timer | None = None
        self._timer_at = 0.0  # on the table's clock
        self._carrying_out = False
        self._closed = False

    def adapt(self) -> None:
        """Take over knobs that were changed."""
        self._table.limits = limits = _limits()
        self._step = limits.look
        self._clock.longest = 2 * self._step

    def __repr__(self) -> str:
        return f"<Links: {[*self._table]}>"

    def listen(self, channel: Channel) -> Channel:
        """Let peers dial us on `channel`; the channel with the real port.

        Raises:
            AddressError, ValueError, OSError: As `listener.listen`; or there is no trust, so no
                host could be let in.
        """
        if self._trust is None:
            raise ValueError(
                f"no host could be let in at {channel.name}: neither certificates nor a secret are"
                " given"
            )
        listener = listen(self._poller, channel, self._trust, self._accepted)
        self._listeners.append(listener)
        return listener.channel

    def use_trust(self, hosts: Iterable[str], trust: Trust) -> None:
        """How to prove who we are to `hosts`, and who they must be, when they are dialed next."""
        for host in hosts:
            self._trust_for[host] = trust

    def send(self, host: str, frame: Frame, starting: bool = True) -> None:
        """Send a frame to a peer, by a name that it can be dialed by or has given itself.

        Never blocks, on any thread.

        The frame's memory must stay as it is until the peer has acknowledged it. Errors are told to
        `link_lost`.

        Args:
            starting: If there is no link yet, the peer may have yet to start:
                `mesh_attach_config_timeout` bounds the wait for it. Otherwise
                `channel_reconnect_timeout` does, and it is lost at once if nothing listens.

        Raises:
            ValueError: The frame is larger than `codec_max_frame_length`.
        """
        packed = self._table.pack(frame)
        if threading.get_ident() == self._poller.thread_id:
            self._send(host, packed, starting)
        else:
            # packed here, as that takes the time: the poller's thread serves all links
            self._poller.call_soon(partial(self._send, host, packed, starting))

    def give_up(self, host: str, reason: str) -> None:
        """End the link to a peer, up or trying, on the poller's thread.

        It is told to `link_lost` here, and to the peer.
        """
        self._table.give_up(host, reason, self._now())
        self._carry_out()

    def close(self, reason: str, timeout: float) -> None:
        """Say farewell, with `reason`, to all peers and end all links; the handler hears no more.

        On any thread. What ends its wait: the peers' hosts have all that was sent, or `timeout`
        seconds.
        """
        if self._poller.thread_id in (None, threading.get_ident()):
            self._close(reason, timeout)
            return
        done = threading.Event()

        def close() -> None:
            try:
                self._close(reason, timeout)
            finally:
                done.set()

        self._poller.call_soon(close)
        # the poller's thread keeps to the time itself, unless it hangs
        done.wait(timeout + 1)

    # on the poller's thread

    def _now(self) -> float:
        return self._clock.at(time.monotonic())

    def _send(self, host: str, packed: Packed, starting: bool) -> None:
        if not self._closed:
            self._table.send(host, packed, self._now(), starting)
            self._carry_out()

    def _close(self, reason: str, timeout: float) -> None:
        end = time.monotonic() + timeout
        if self._closed:
            return
        self._table.close(reason, self._now())
        self._carry_out()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            listener.close()
        for stream in self._streams.values():
            stream.flush(max(0.0, end - time.monotonic()))
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _accepted(self, stream: ByteStream) -> _Events:
        number = self._table.accepted(self._now())
        self._add(number, stream)
        self._carry_out()
        return _Events(self, number)

    def _tick(self) -> None:
        self._timer = None
        self._table.tick(self._now())
        self._carry_out()

    # carrying out

    def _carry_out(self) -> None:
        """Do what the table says and what follows from that; then set the next wake-up."""
        # what an instruction causes is appended to the table, and done by the loop that runs
        # already: in order, and without recursion
        if self._carrying_out or self._closed:
            return
        self._carrying_out = True
        try:
            for instruction in self._table.take():
                self._do(instruction)
        finally:
            self._carrying_out = False
        self._set_timer()

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Deliver(host, frame):
                self._tell(self._handler.frame_from, host, frame)
            case Write(number, chunks):
                if (stream := self._streams.get(number)) is not None:
                    stream.write(chunks)
            case Dial(number, host):
                self._dial(number, host)
            case Cut(number):
                if (stream := self._streams.pop(number, None)) is not None:
                    stream.close()
            case Up(host):
                note("links", "link to %s is up", host)
                self._tell(self._handler.link_up, host)
            case Lost(host, reason):
                note("links", "link to %s is lost: %s", host, reason)
                self._tell(self._handler.link_lost, host, reason)
            case Called(name):
                self._tell(self._handler.called, name)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        try:
            callback(*args)
        except FrameError as error:  # of a route: its maker may be another host
            logger.warning("a host sent something unreadable: %s", error)
        except Exception:  # a bug in handling one message must not lose those behind it
            logger.exception("internal error in handling news of a link; please report it")

    def _dial(self, number: int, host: str) -> None:
        try:
            channel = parse_channel(host)
        except AddressError as error:
            self._table.closed(
                number, f"it has no address to dial: {error}", self._now(), final=True
            )
            return
        trust = self._trust_for.get(host, self._trust)
        if trust is None:
            reason = "neither certificates nor a secret are given for it: attach it first"
            self._table.closed(number, reason, self._now(), final=True)
            return
        note("links", "stream %d is dialed to %s", number, host)
        self._add(number, connect(self._poller, channel, trust, _Events(self, number)))

    def _add(self, number: int, stream: ByteStream) -> None:
        stream.space = partial(self._table.space, number)
        self._streams[number] = stream

    def _set_timer(self) -> None:
        """Wake when something is due, and often enough for the clock while something is awaited."""
        due = self._table.due
        if due is None:
            return
        now = self._now()
        when = min(due, now + self._step)
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._poller.call_later(max(0.0, when - now), self._tick)


def _limits() -> Limits:
    return Limits(
        max(_SHORTEST, config.value("channel_reconnect_timeout")),
        config.value("mesh_attach_config_timeout"),
        config.value("codec_max_frame_length") + AROUND,
    )


class _Events:
    """Tells `Links` of one stream."""

    __slots__ = ("_links", "_number")

    def __init__(self, links: Links, number: int) -> None:
        self._links = links
        self._number = number

    def answered(self) -> None:
        links = self._links
        links._table.answered(self._number, links._now())

    def ready(self) -> None:
        links = self._links
        links._table.ready(self._number, links._now())
        links._carry_out()

    def data(self, chunk: memoryview) -> None:
        links, number = self._links, self._number
        if links._table.space(number) is not None:  # then it lies there
            links._table.filled(number, len(chunk), links._now())
        else:
            links._table.data(number, chunk, links._now())
        links._carry_out()

    def closed(self, reason: str, final: bool) -> None:
        links, number = self._links, self._number
        links._streams.pop(number, None)
        note("links", "stream %d ended: %s", number, reason)
        refused = reason.startswith(NOTHING_LISTENS)
        links._table.closed(number, reason, links._now(), final=final, refused=refused)
        links._carry_out()
