"""The links of one process: who is behind which name, and which stream belongs to whom.

No I/O, no clock.

Events and the time go in; `take` gives the actions, in order. A stream is a number here,
given out with `Dial` or by `accepted`; input from a stream that has been cut is ignored.

How two processes come to one link::

    dialer                                 listener
    ------                                 --------
    greeting: identity, name, called ───▶  remembers who it is
    checks who it is  ◀───────────────     greeting: identity, name
    JOIN: link, frames received ────────▶  has it that link, or may there be a new one?
    sends missing frames ◀──────────────   JOINED: link, frames received; sends missing frames

* A name may lead to a process that we have a link with already, under another name. The dialer sees
  that from its identity, and the link takes over the name and the frames that wait for it.
* A link that was up goes on only with the same process: another identity behind its name means that
  it was restarted.
* When both dial, each may get the other's JOIN. A side that has sent none itself takes it; if both
  have, that of the lower identity counts. The other's link takes the winner's stream and keeps its
  queued frames: it has sent none yet.
* Records of an older stream may arrive later than those of a newer one. JOIN and JOINED carry
  serial numbers of their sender, so that an old JOIN is known, and void.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ..._namedtuple import NamedTuple
from .address import random_name
from .frame import Bytes, Frame
from .link import CLOSED, JOINING, LOST, RESUMING, UP, Link
from .link_limits import Limits
from .link_records import (
    ACK,
    CLIENT_HOST,
    DATA,
    FAREWELL,
    JOIN,
    JOINED,
    PING,
    REFUSED,
    VERSION,
    YIELD,
    Hello,
    Join,
    LinkError,
    Packed,
    Record,
    RecordDecoder,
    control,
    greeting,
    pack,
    read_hello,
    read_join,
    why_apart,
)

_NEVER = float("inf")


class Dial(NamedTuple):
    """Begin to connect to `host`; the stream is to be known as `stream`."""

    stream: int
    host: str


class Write(NamedTuple):
    stream: int
    chunks: list[Bytes]


class Cut(NamedTuple):
    """Close the stream, and tell no more of it."""

    stream: int


class Deliver(NamedTuple):
    host: str
    frame: Frame


class Up(NamedTuple):
    host: str


class Lost(NamedTuple):
    """The link to `host` has ended; the next frame for it starts another."""

    host: str
    reason: str


class Called(NamedTuple):
    """A peer has dialed us under this name."""

    name: str


Instruction = Dial | Write | Cut | Deliver | Up | Lost | Called


class _Stream:
    """One byte stream.

    A stranger's has no link until it joins one; one that is only awaited to close has none either.
    """

    __slots__ = ("decoder", "link", "over", "peer")

    def __init__(self, limit: int, link: Link | None) -> None:
        self.decoder = RecordDecoder(limit)
        self.link = link
        self.peer: Hello | None = None
        self.over = False  # all that comes then is ignored


class LinkTable:
    """See the module.

    All methods take the time in which the process ran, in seconds (see `link_limits.RunClock`).

    Args:
        identity: Of this process; random.
        name: Gives its present name.
        limits: Of each link.
        random: Gives link names that are unique.
    """

    def __init__(
        self,
        identity: str,
        name: Callable[[], str],
        limits: Limits,
        random: Callable[[], str] = random_name,
    ) -> None:
        self.limits = limits
        self._identity = identity
        self._name = name
        self._random = random
        self._links: dict[str, Link] = {}  # by name; one link may have several
        self._by_identity: dict[str, Link] = {}
        self._streams: dict[int, _Stream] = {}
        self._numbers = itertools.count(1)
        self._serials = itertools.count(1)
        # links, and streams without one by their numbers
        self._due: list[tuple[float, int, Link | int]] = []
        self._order = itertools.count()
        self._instructions: deque[Instruction] = deque()
        self._now = 0.0  # of the latest event

    def __iter__(self) -> Iterator[Link]:
        return iter(dict.fromkeys(self._links.values()))

    def take(self) -> Iterator[Instruction]:
        """Take the instructions in order; those that result from one are added at the end."""
        while self._instructions:
            yield self._instructions.popleft()

    def get(self, host: str) -> Link | None:
        return self._links.get(host)

    # events

    def pack(self, frame: Frame) -> Packed:
        """Encode a frame for `send`. Safe on any thread.

        Raises:
            ValueError: The frame is larger than the limit.
        """
        packed = pack(frame)
        if packed.size > self.limits.frame:
            raise ValueError(
                f"a message of {packed.size} bytes; {self.limits.frame} are the most between hosts "
                "(codec_max_frame_length)"
            )
        return packed

    def send(self, host: str, packed: Packed, now: float, starting: bool = True) -> None:
        """Send a frame to `host`; dial it first if there is no link.

        Unless it may be `starting`, it must listen.
        """
        self._now = now
        link = self._links.get(host)
        if link is None:
            link = self._links[host] = Link(
                self, [host], dials=True, uid=self._random(), now=now, starting=starting
            )
            link.tick(now)
        link.send(packed, now)

    def accepted(self, now: float) -> int:
        """A stream that an authenticated peer has opened; its number."""
        self._now = now
        number = self._new_stream(None)
        # a peer that connects and never joins a link would hold the stream for ever
        self._close_at(number, now + self.limits.silence)
        self.write(number, [greeting(self.hello(""))])
        return number

    def answered(self, number: int, now: float) -> None:
        """A stream that we open is connected, and has yet to be authenticated."""
        self._now = now
        stream = self._streams.get(number)
        if stream is not None and stream.link is not None:
            stream.link.answered(number, now)

    def ready(self, number: int, now: float) -> None:
        """A stream that we have opened is authenticated."""
        self._now = now
        stream = self._streams.get(number)
        if stream is not None and stream.link is not None:
            stream.link.ready(number, now)

    def space(self, number: int) -> memoryview | None:
        """The best place for the next bytes of a stream, if they belong to something large."""
        stream = self._streams.get(number)
        return None if stream is None or stream.over else stream.decoder.space()

    def filled(self, number: int, count: int, now: float) -> None:
        """So many bytes are in `space`."""
        self._now = now
        stream = self._streams.get(number)
        if stream is not None and not stream.over:
            self._came(number, stream, stream.decoder.filled(count), now)

    def data(self, number: int, chunk: memoryview, now: float) -> None:
        """Bytes of a stream; the memory may be used again."""
        self._now = now
        stream = self._streams.get(number)
        if stream is not None and not stream.over:
            self._came(number, stream, stream.decoder.feed(chunk), now)

    def closed(
        self, number: int, reason: str, now: float, *, final: bool = False, refused: bool = False
    ) -> None:
        """A stream has ended, or could not be opened.

        Args:
            final: To try again cannot help.
            refused: Nothing listened there.
        """
        self._now = now
        stream = self._streams.pop(number, None)
        if stream is not None and stream.link is not None:
            inside = "" if stream.decoder.idle else ", in the middle of a message"
            stream.link.ended(number, reason + inside, now, final=final, refused=refused)

    @property
    def due(self) -> float | None:
        """The time at which `tick` has something to do; None if never."""
        return self._due[0][0] if self._due else None

    def tick(self, now: float) -> None:
        """Run the timers that are due."""
        self._now = now
        due = self._due
        while due and due[0][0] <= now:
            when, _, what = heapq.heappop(due)
            if isinstance(what, int):
                self._overdue(what)
            elif when == what.armed and what.state not in (LOST, CLOSED):
                # else it has been due earlier
                what.armed = _NEVER
                what.tick(now)
                self.arm(what)

    def give_up(self, host: str, reason: str, now: float) -> None:
        """End the link to a host, if there is one; the peer is told so."""
        self._now = now
        link = self._links.get(host)
        if link is not None:
            link.failed(reason, now)

    def close(self, reason: str, now: float) -> None:
        """Say farewell on all links, and forget them."""
        self._now = now
        for link in self:
            link.close(reason, now)
        self._links.clear()
        self._by_identity.clear()
        for number, stream in list(self._streams.items()):
            if not stream.over:
                self.cut(number, False)

    # what links have done for them

    def dial(self, link: Link) -> int:
        number = self._new_stream(link)
        self._instructions.append(Dial(number, link.address))
        return number

    def write(self, stream: int, chunks: list[Bytes]) -> None:
        self._instructions.append(Write(stream, chunks))

    def cut(self, stream: int, politely: bool) -> None:
        known = self._streams.get(stream)
        if known is None:
            return
        known.link, known.over = None, True
        # kept until the peer has closed it: to close it with bytes unread would reset it, and the
        # last words on their way would be lost
        if politely:
            self._close_at(stream, self._now + self.limits.silence)
        else:
            del self._streams[stream]
            self._instructions.append(Cut(stream))

    def hello(self, called: str) -> Hello:
        return Hello(self._identity, self._name(), called)

    def serial(self) -> int:
        return next(self._serials)

    def arm(self, link: Link) -> None:
        if link.state in (LOST, CLOSED):
            return
        when = link.due()
        # an earlier entry of the link is left in the heap, and void when it comes up (see `tick`):
        # to take it out would be a search
        if when < link.armed:
            link.armed = when
            heapq.heappush(self._due, (when, next(self._order), link))

    def up(self, link: Link) -> None:
        self._instructions.extend(map(Up, link.names))

    def lost(self, link: Link, reason: str) -> None:
        self._forget(link)
        self._instructions.extend(Lost(name, reason) for name in link.names)

    # streams and records

    def _new_stream(self, link: Link | None) -> int:
        number = next(self._numbers)
        self._streams[number] = _Stream(self.limits.frame, link)
        return number

    def _close_at(self, number: int, when: float) -> None:
        """Cut a stream then, unless a link has it."""
        heapq.heappush(self._due, (when, next(self._order), number))

    def _overdue(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is not None and stream.link is None:
            self.cut(number, False)

    def _came(self, number: int, stream: _Stream, records: Iterable[Record], now: float) -> None:
        if stream.link is not None:
            stream.link.heard(now)
        try:
            for record in records:
                self._record(number, stream, record, now)
                if stream.over:
                    return
        except LinkError as error:
            if stream.link is not None:
                stream.link.garbled(error, now)
            else:
                self._refuse(number, str(error))

    def _record(self, number: int, stream: _Stream, record: Record, now: float) -> None:
        link, kind = stream.link, record.kind
        if stream.peer is None:
            self._greeted(stream, record, now)
        elif link is None:
            if kind != JOIN:
                raise LinkError(f"it sent a record of kind {kind} on a stream that is of no link")
            self._asked(number, stream, stream.peer, read_join(record.body), now)
        elif kind in (REFUSED, FAREWELL):
            link.failed(record.text, now)
        elif link.state == UP and kind in (DATA, ACK, PING):
            frame = link.take(record, now)
            if frame is not None:
                self._instructions.append(Deliver(link.names[0], frame))
        elif link.state in (JOINING, RESUMING) and kind == JOINED:
            self._agreed(number, link, read_join(record.body), now)
        elif link.state == JOINING and kind == YIELD:
            link.cut("it dials this host itself", now)
        else:
            raise LinkError(f"it sent a record of kind {kind} to a link that is {link.state}")

    def _greeted(self, stream: _Stream, record: Record, now: float) -> None:
        peer = read_hello(record.body)
        if apart := why_apart(self._me(), self.hello(""), peer):
            raise LinkError(apart, final=True)
        if stream.decoder.version != VERSION:
            raise LinkError(
                f"it speaks version {stream.decoder.version} of the protocol between hosts, and"
                f" {self._me()} speaks version {VERSION}: install the same release on both",
                final=True,
            )
        stream.peer = peer
        if stream.link is not None:
            self._reached(stream.link, peer, now)
        elif peer.called:
            self._instructions.append(Called(peer.called))

    def _reached(self, link: Link, peer: Hello, now: float) -> None:
        """A name that we dialed has led to `peer`."""
        known = self._by_identity.get(peer.identity, link)
        if peer.identity == self._identity:
            self._instructions.append(Called(link.address))
            link.failed("it leads back to this very host", now)
        elif link.was_up and peer.identity != link.identity:
            link.failed("another process answers there now: it was restarted", now)
        elif known is not link:
            self._merge(link, known, now)
        else:
            self._identify(link, peer.identity)
            link.greeted(now)

    def _merge(self, link: Link, known: Link, now: float) -> None:
        """`link`, which was never up, leads to the same process as `known`."""
        link.close("", now)
        self._forget(link)
        for name in link.names:
            self._add_name(known, name)
        known.absorb(link, now)

    def _add_name(self, link: Link, name: str) -> None:
        self._links[name] = link
        if name not in link.names:
            link.names.append(name)
            if link.was_up:
                self._instructions.append(Up(name))

    def _asked(self, number: int, stream: _Stream, peer: Hello, join: Join, now: float) -> None:
        """A peer that dialed wants a link, or to go on with one."""
        link = self._by_identity.get(peer.identity)
        known = link is not None and link.uid == join.link
        if link is not None and join.serial < link.peer_serial:
            self.cut(number, False)
        elif join.resume and not known:
            self._refuse(
                number, f"{self._me()} no longer has this link: it was out of contact for too long"
            )
        elif (
            link is not None
            and not known
            and link.state == JOINING
            and self._identity < peer.identity
        ):
            self.write(number, [control(YIELD)])
            self.cut(number, True)
        else:
            # its frames belong to a link that the peer has forgotten: to go on would lose or repeat
            # some
            if link is not None and not known and link.was_up:
                link.failed("it has given up the link, and begun another", now)
            link = self._link_for(peer, now)
            link.joined(number, join, now)
            stream.link = link

    def _link_for(self, peer: Hello, now: float) -> Link:
        """The link of a peer that has dialed: the present or planned one, else a new one."""
        name = peer.name or peer.identity
        named = self._links.get(name)
        if named is not None and named.was_up and named.identity != peer.identity:
            named.failed("another process has its name now: it was restarted", now)
            named = None
        link = self._by_identity.get(peer.identity) or named
        if link is None:
            link = self._links[name] = Link(self, [name], dials=False, uid="", now=now)
            self.arm(link)
        elif named is None:
            self._add_name(link, name)
        elif named is not link:
            self._merge(named, link, now)
        self._identify(link, peer.identity)
        return link

    def _agreed(self, number: int, link: Link, join: Join, now: float) -> None:
        if join.link != link.uid:
            raise LinkError("it agrees to a link that was not proposed", final=True)
        link.joined(number, join, now)

    def _refuse(self, number: int, reason: str) -> None:
        self.write(number, [control(REFUSED, 0, reason)])
        self.cut(number, True)

    def _identify(self, link: Link, identity: str) -> None:
        if link.identity is not None and self._by_identity.get(link.identity) is link:
            del self._by_identity[link.identity]
        link.identity = identity
        self._by_identity[identity] = link

    def _forget(self, link: Link) -> None:
        for name in link.names:
            if self._links.get(name) is link:
                del self._links[name]
        if link.identity is not None and self._by_identity.get(link.identity) is link:
            del self._by_identity[link.identity]

    def _me(self) -> str:
        return self._name() or CLIENT_HOST
