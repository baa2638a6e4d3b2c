"""What the gateway of a host does with each frame that leaves the host or arrives: frames and events in, frames out.

A gateway passes on what processes of its host send elsewhere, hands what arrives to them in the order of each sender
(`order`), takes part in casts (`cast`), and tells whoever has talked to a process, or to a host, that it has ended.

Casts survive those who pass them on. Whoever loses a host below says so upwards, and the root hands the call to each host
that stood below the lost one itself; a host that has the call already only changes its parent, and answers again. What it
costs when all is well: the root keeps the call until all have answered, each host its own answers until the root has all.

Hosts with an address, ``tcp://...``, are dialed. A host without one, such as a client's, is reached over the link that its
frames came on. What ends each wait: a message that waits for one before it is
given up after `patience` seconds, and so is a cast whose parent is lost if its root does not ask again.
"""

from __future__ import annotations

import itertools
import os
import pickle
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..supervision.failure import LINK, Failure, host_lost
from ..wire.address import AGENT, ProcAddress
from ..wire.frame import AGAIN, CALL, CAST, CLOSE, GONE, PORT, REPLIES, REPLY, ROUTED, STANDING, URGENT, VALUE, Frame
from . import cast as casts
from .cast import Branch, Cast, Entry
from .order import Numbering, Reordering
from .route import Route, read_route, route_prefix, with_order, with_route

DONE, LOST, PROMPT = 1, 2, 4  # flags of REPLIES: all below have answered; a host below is lost; not to be held back
COMBINED = 64 * 1024  # bytes of an answer that may wait for others; a larger one goes straight to the caller
LINGER = 0.001  # seconds that an answer waits for others, in each gateway on its way
_CLOSING = 0.05  # seconds in which casts that are over are gathered
_LATE = 60.0  # seconds after which nothing more is expected of a process that has ended


class Outside(Protocol):
    """What a gateway acts on."""

    def to_host(self, host: str, frame: Frame) -> None:
        """Send over the link to a host, which is dialed if there is none."""

    def to_procs(self, frames: Sequence[tuple[ProcAddress, Frame]]) -> Sequence[tuple[ProcAddress, Failure]]:
        """Send requests to processes of this host; returns those that are known to have ended."""

    def answer(self, proc: str, frame: Frame) -> None:
        """Send an answer to a process of this host that has sent a request."""

    def answer_all(self, proc: str, frames: bytes) -> None:
        """Send many, encoded one after the other."""

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        """Tell a process of this host who has ended: as one that it asks, and as one that asks it."""

    def host_gone(self, host: str, failure: Failure) -> None:
        """A host is lost, or has left."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any: ...


class Gateway:
    """Args:
    outside: What it acts on.
    fanout: Most hosts that a cast is handed to by one.
    epoch: See `Numbering`.
    patience: Seconds, see above.
    """

    def __init__(self, outside: Outside, fanout: int, epoch: int, patience: float) -> None:
        self.names: set[str] = set()  # what this host is called by others
        self.via: str | None = None  # the only host that can be dialed, where that is so
        self._outside = outside
        self._fanout = fanout
        self._patience = patience
        self._numbering = Numbering(epoch)
        self._reordering = Reordering()
        self._behind: dict[str, str] = {}  # host without an address -> neighbour that it is reached through
        self._asking: dict[str, set[ProcAddress]] = {}  # host -> who sends there through this gateway
        self._asked: dict[
            str, dict[ProcAddress, str]
        ] = {}  # process here -> who has talked to it, by which of our names
        self._casts: dict[tuple[str, int], Cast] = {}
        self._cast_ids = itertools.count(int.from_bytes(os.urandom(4), "big") << 24 | 1)
        self._closing: dict[str, list[tuple[str, int]]] = {}
        self._incomplete: set[ProcAddress] = set()  # who has sent something that waits for something before it

    @property
    def casts(self) -> int:
        """Casts that are not over yet."""
        return len(self._casts)

    # from processes of this host

    def from_proc(self, frame: Frame) -> None:
        """A process of this host sends a frame elsewhere."""
        if frame.kind == CAST:
            self._begin(frame)
            return
        route, _ = read_route(frame)
        if frame.kind == REPLY and route.cast and self._collect(route, frame):
            return
        if route.to.host in self.names:  # by another name of this very host
            self._arrived(route, frame)
            return
        if frame.kind in (CALL, PORT) and not frame.flags & URGENT:
            frame = with_order(frame, self._numbering.next(route.source, route.to.host))
        self._pass_on(route, frame)

    def proc_ended(self, address: ProcAddress, failure: Failure) -> None:
        """A process of this host has ended: whoever has talked to it is told, after all that it has said."""
        told = set()
        asked = self._asked.pop(address.proc, {})
        for cast in list(self._casts.values()):
            name = asked.get(cast.source)
            if name is not None and cast.parent is not None:
                told.add(cast.source)
                cast.answered(_gone(cast.source, ProcAddress(name, address.proc), failure))
                cast.ranks.pop(address.proc, None)
                self._flush(cast, prompt=True)
        for source, name in asked.items():
            if source not in told:
                self._tell(source, ProcAddress(name, address.proc), failure)
        for sources in self._asking.values():
            sources.discard(address)
        for cast in [cast for cast in self._casts.values() if cast.source == address]:
            self._over(cast)
        if not failure.restarts:
            self._numbering.forget(address)

    # from other hosts

    def from_host(self, neighbour: str, frame: Frame) -> None:
        """A frame has come over a link."""
        if frame.kind == CAST:
            self._cast_came(neighbour, frame)
        elif frame.kind == REPLIES:
            self._replies_came(neighbour, frame)
        elif frame.kind == CLOSE:
            for key in pickle.loads(frame.payload):
                self._close_came(key)
        else:
            route, _ = read_route(frame)
            source = route.source.host
            if not _has_address(source):
                self._behind[source] = neighbour
            if route.to.host in self.names:
                self._arrived(route, frame)
            else:
                self._pass_on(route, frame)

    def link_lost(self, host: str, reason: str) -> None:
        """Nothing that is sent to a host will arrive; it is called once for each link."""
        failure = host_lost(host, reason)
        for cast in list(self._casts.values()):
            if host in cast.branches:
                self._lost_below(cast, host)
            elif cast.parent == host and cast.source.host != host:
                self._orphan(cast, host)
        self._host_gone(host, failure)
        for other in [other for other, neighbour in self._behind.items() if neighbour == host]:
            self._host_gone(other, failure)

    def close(self) -> None:
        """This host leaves: its casts are over."""
        for cast in list(self._casts.values()):
            if cast.parent is None:
                self._over(cast)
        self._send_closing()

    def withdraw(self, source: ProcAddress, hosts: Sequence[str]) -> None:
        """A process does not want these hosts to be watched over for it any more."""
        for cast in list(self._casts.values()):
            if cast.standing and cast.parent is None and cast.source == source:
                entries = casts.read_table(cast.header.table)
                if {entry.host for entry in entries} <= set(hosts):
                    self._over(cast)
        self._send_closing()
        for host in hosts:  # which may forget what it has had from here
            self._numbering.lost(host)

    # one to one

    def _pass_on(self, route: Route, frame: Frame) -> None:
        host = route.to.host
        hop = self._behind.get(host) or (host if _has_address(host) else None)
        if hop is not None and hop == host and self.via is not None:
            hop = self.via
        if hop is None:
            if frame.kind != GONE:
                reason = "there is no way to it from here: it has no address, and no link to it is left"
                self._tell(route.source, ProcAddress(host, AGENT), host_lost(host, reason))
            return
        if frame.kind != GONE:
            self._asking.setdefault(host, set()).add(route.source)
        self._outside.to_host(hop, frame)

    def _arrived(self, route: Route, frame: Frame) -> None:
        if frame.kind == GONE:
            self._heard_gone(route.source, frame)
            self._outside.gone(route.to, frame)
        elif frame.kind not in (CALL, PORT):
            self._outside.answer(route.to.proc, frame)
        elif route.order:
            self._in_order(route.source, route.order, frame)
        else:
            self._hand_over(frame)

    def _in_order(self, source: ProcAddress, order: int, message: Frame | Cast) -> None:
        ready = self._reordering.arrived(source, order, message)
        for early in ready:
            self._hand_over(early)
        if not ready and self._reordering.waits_for(source) and source not in self._incomplete:
            self._incomplete.add(source)
            self._outside.call_later(self._patience, lambda: self._still_incomplete(source, order))

    def _still_incomplete(self, source: ProcAddress, order: int) -> None:
        """A message is lost for good: only if one of two hosts took the other for lost, and was wrong."""
        self._incomplete.discard(source)
        waits_for = self._reordering.waits_for(source)
        if not waits_for:
            return
        if waits_for > order:  # it has got on since
            self._incomplete.add(source)
            self._outside.call_later(self._patience, lambda: self._still_incomplete(source, waits_for))
            return
        self._reordering.forget(source)
        lost = Failure(LINK, "it has lost messages on their way to it", proc=source.host)
        for name in self.names:
            self._tell(source, ProcAddress(name, AGENT), lost)

    def _heard_gone(self, who: ProcAddress, frame: Frame) -> None:
        if who.proc != AGENT:
            self._outside.call_later(_LATE, lambda: self._reordering.forget(who))
        elif who.host in self._behind:
            self._host_gone(who.host, pickle.loads(frame.payload))
        else:
            self._numbering.lost(who.host)

    def _hand_over(self, message: Frame | Cast) -> None:
        if isinstance(message, Cast):
            self._hand_over_cast(message)
            return
        route, _ = read_route(message)
        self._asked.setdefault(route.to.proc, {})[route.source] = route.to.host
        for _, failure in self._outside.to_procs([(route.to, message)]):
            self._tell(route.source, route.to, failure)

    def _tell(self, to: ProcAddress, who: ProcAddress, failure: Failure) -> None:
        frame = _gone(to, who, failure)
        if to.host in self.names:
            self._outside.gone(to, frame)
        else:
            self._pass_on(Route(to, who), frame)

    def _host_gone(self, host: str, failure: Failure) -> None:
        self._behind.pop(host, None)
        self._numbering.lost(host)
        who = ProcAddress(host, AGENT)
        asking = self._asking.pop(host, set())
        for proc, sources in self._asked.items():
            gone = [source for source in sources if source.host == host]
            if gone:
                asking.add(ProcAddress(sources[gone[0]], proc))
            for source in gone:
                del sources[source]
        self._reordering.forget_host(host)
        for address in asking:
            self._tell(address, who, failure)
        for cast in [cast for cast in self._casts.values() if cast.source.host == host]:
            self._over(cast)
        self._send_closing()
        self._outside.host_gone(host, failure)

    # casts: down

    def _begin(self, frame: Frame) -> None:
        header, meta = casts.split_header(frame)
        call = frame._replace(kind=CALL, flags=frame.flags & ~ROUTED, meta=meta)
        entries = casts.read_table(header.table)
        direct = [entry for entry in entries if not self._is_dialed(entry.host)]
        if direct:  # one by one
            for entry in direct:
                self._call_each(header.source, entry, call)
            entries = tuple(entry for entry in entries if self._is_dialed(entry.host))
            header = header._replace(table=casts.pack_table(entries))
        orders = array("Q", [self._numbering.next(header.source, entry.host) for entry in entries])
        header = header._replace(id=next(self._cast_ids), orders=orders)
        cast = Cast(header, call, None, bool(frame.flags & STANDING))
        self._casts[cast.key] = cast
        for entry in entries:
            self._asking.setdefault(entry.host, set()).add(header.source)
        for branch in casts.split(entries, 0, len(entries), self._fanout):
            self._hand_down(cast, branch)

    def _is_dialed(self, host: str) -> bool:
        return _has_address(host) and self.via is None and host not in self.names

    def _call_each(self, source: ProcAddress, entry: Entry, call: Frame) -> None:
        for proc, rank in zip(entry.procs, entry.ranks, strict=True):
            self.from_proc(with_route(call._replace(rank=rank), Route(ProcAddress(entry.host, proc), source)))

    def _hand_down(self, cast: Cast, branch: Branch, again: int = 0) -> None:
        cast.branches[branch.host] = branch
        cast.waiting.add(branch.host)
        header = casts.part(cast.header, branch.start, branch.end)
        call = cast.frame._replace(flags=cast.frame.flags | again)
        self._outside.to_host(branch.host, casts.with_header(call, header))

    def _cast_came(self, neighbour: str, frame: Frame) -> None:
        header, meta = casts.split_header(frame)
        known = self._casts.get((header.source.host, header.id))
        if known is not None:
            if frame.flags & AGAIN:
                known.start_again(neighbour)
                self._flush(known, prompt=True)
            return
        if not _has_address(header.source.host):
            self._behind.setdefault(header.source.host, neighbour)
        entries = casts.read_table(header.table)
        cast = Cast(header, frame._replace(kind=CALL, meta=meta), neighbour, bool(frame.flags & STANDING))
        self._casts[cast.key] = cast
        for branch in casts.split(entries, 1, len(entries), self._fanout):
            self._hand_down(cast, branch)
        cast.expect(entries[0])
        self._in_order(header.source, header.orders[0], cast)
        if cast.done:
            self._flush(cast)

    def _hand_over_cast(self, cast: Cast) -> None:
        entry = casts.read_table(cast.header.table)[0]
        call = cast.frame._replace(flags=cast.frame.flags & ~(STANDING | AGAIN) | ROUTED)
        frames = []
        for proc, rank in zip(entry.procs, entry.ranks, strict=True):
            self._asked.setdefault(proc, {})[cast.source] = entry.host
            address = ProcAddress(entry.host, proc)
            prefix = route_prefix(Route(address, cast.source, cast=cast.id))
            frames.append((address, call._replace(rank=rank, meta=prefix + call.meta)))
        cast.frame = cast.frame._replace(payload=b"", buffers=())
        for address, failure in self._outside.to_procs(frames):
            cast.ranks.pop(address.proc, None)
            cast.answered(_gone(cast.source, address, failure))
            self._flush(cast, prompt=True)

    # casts: up

    def _collect(self, route: Route, frame: Frame) -> bool:
        """Let an answer wait for others; False if it is better sent by itself."""
        cast = self._casts.get((route.to.host, route.cast))
        if cast is None or route.source.proc not in cast.ranks:
            return False
        del cast.ranks[route.source.proc]
        small = len(frame.payload) + sum(map(len, frame.buffers)) <= COMBINED
        if small:
            cast.answered(frame)
        else:
            self._pass_on(route, frame)
        self._flush(cast, prompt=frame.flags & ~ROUTED != VALUE)
        return True

    def _replies_came(self, neighbour: str, frame: Frame) -> None:
        host, _, proc = frame.meta.decode().partition("\0")
        cast = self._casts.get((host, frame.request))
        if cast is None:
            self._late_replies(ProcAddress(host, proc), frame)
            return
        if frame.flags & LOST:
            self._report_lost(cast, bytes(frame.payload).decode())
            return
        if frame.payload:
            cast.combine(bytes(frame.payload))
        if frame.flags & DONE:
            cast.waiting.discard(neighbour)
        self._flush(cast, prompt=bool(frame.flags & PROMPT))

    def _late_replies(self, source: ProcAddress, frame: Frame) -> None:
        """The cast is over, but not all that is said by way of it: somebody has ended since."""
        if not frame.payload or frame.flags & LOST:
            return
        if source.host in self.names:
            self._outside.answer_all(source.proc, bytes(frame.payload))
        else:
            hop = self._behind.get(source.host, source.host)
            self._outside.to_host(hop, frame)

    def _flush(self, cast: Cast, prompt: bool = False) -> None:
        """Send on what has been gathered: when all is there, when it is urgent, or soon."""
        if cast.done or prompt:
            self._send_up(cast, prompt)
        elif not cast.lingers:
            cast.lingers = True
            self._outside.call_later(LINGER, lambda: self._lingered(cast))

    def _lingered(self, cast: Cast) -> None:
        cast.lingers = False
        if not cast.told:
            self._send_up(cast, prompt=False)

    def _send_up(self, cast: Cast, prompt: bool) -> None:
        replies, done = cast.take(), cast.done
        if cast.parent is None:
            if replies:
                self._outside.answer_all(cast.source.proc, replies)
            if done and not cast.standing:
                self._over(cast)
        elif replies or (done and not cast.told):
            cast.told = done
            flags = (DONE if done else 0) | (PROMPT if prompt else 0)
            self._outside.to_host(cast.parent, Frame(REPLIES, flags, 0, 0, 0, cast.id, _names(cast), replies))

    # casts: over, or broken

    def _over(self, cast: Cast) -> None:
        """Nobody waits for it any more: those below may forget it."""
        self._casts.pop(cast.key, None)
        if cast.branches and not self._closing:
            self._outside.call_later(_CLOSING, self._send_closing)
        for host in cast.branches:
            self._closing.setdefault(host, []).append(cast.key)

    def _send_closing(self) -> None:
        closing, self._closing = self._closing, {}
        for host, keys in closing.items():
            self._outside.to_host(host, Frame(CLOSE, 0, 0, 0, 0, 0, b"", pickle.dumps(keys)))

    def _close_came(self, key: tuple[str, int]) -> None:
        cast = self._casts.get(key)
        if cast is None:
            return
        self._over(cast)
        if cast.standing and not self._is_watched_by(key[0]):
            self._host_gone(key[0], Failure(LINK, "it has left", proc=key[0]))

    def _is_watched_by(self, host: str) -> bool:
        return any(cast.standing and cast.source.host == host for cast in self._casts.values())

    def _lost_below(self, cast: Cast, host: str) -> None:
        if cast.parent is None:
            self._hand_down_again(cast, host)
        else:
            del cast.branches[host]
            cast.waiting.discard(host)
            self._report_lost(cast, host)

    def _report_lost(self, cast: Cast, host: str) -> None:
        if cast.parent is None:
            self._hand_down_again(cast, host)
            return
        lost = Frame(REPLIES, LOST, 0, 0, 0, cast.id, _names(cast), host.encode())
        self._outside.to_host(cast.parent, lost)
        self._flush(cast, prompt=True)

    def _hand_down_again(self, cast: Cast, host: str) -> None:
        """At the root: hand the call to each host below a lost one; and to that one, if only another has lost it."""
        entries = casts.read_table(cast.header.table)
        own = cast.branches.pop(host, None)
        cast.waiting.discard(host)
        if own is not None:
            orphans = [single for single in cast.singles(own) if single.host != host]
        else:
            found = (casts.below(entries, branch, self._fanout, host) for branch in cast.branches.values())
            orphans = [single for lost in found if lost is not None for single in cast.singles(lost)]
        for single in orphans:
            self._hand_down(cast, single, AGAIN)
        self._flush(cast, prompt=True)

    def _orphan(self, cast: Cast, parent: str) -> None:
        def check() -> None:
            if cast.parent != parent or self._casts.get(cast.key) is not cast:
                return
            if cast.standing:
                self._host_gone(cast.source.host, host_lost(cast.source.host, "it has not been heard of"))
            else:
                self._over(cast)

        self._outside.call_later(self._patience, check)


def _gone(to: ProcAddress, who: ProcAddress, failure: Failure) -> Frame:
    frame = Frame(GONE, 0, 0, 0, 0, 0, b"", pickle.dumps(failure))
    return with_route(frame, Route(to, who))


def _names(cast: Cast) -> bytes:
    return "\0".join(cast.source).encode()


def _has_address(host: str) -> bool:
    return "://" in host
