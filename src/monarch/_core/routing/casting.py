"""Casts of one gateway: sent down a tree of hosts, with their answers combined on the way up.

The gateway of each host calls `Casting` with the frames and link losses that concern a cast.

A cast survives the loss of hosts that pass it on. A host that loses a child reports it upwards.
The root then sends the call itself to each host below the lost one, and to that one, if only
another host has lost it. A host that has the call already just changes its parent and answers
again. A host that is asked again confirms at once; without that within `_AT_ONCE`, or a fifth of
the time for which a link may be away, it is lost. For `_AVOIDED` seconds it gets the calls of that
root from the root itself, since hosts that cannot reach it would delay each of them. The cost
without losses: the root keeps the call until all have answered, and each host keeps its own answers
until the root has all.

A call is over when the root has all answers. The root says so down the tree, and only then do hosts
forget the call. Only the parent may say so: a host that has changed its parent ignores the former.
"""

from __future__ import annotations

import itertools
import os
import pickle
from array import array
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from ..supervision.failure import LINK, Failure, host_lost
from ..wire.address import AGENT, ProcAddress, has_address
from ..wire.frame import AGAIN, CALL, EXPLICIT, PRINTED, REPLIES, ROUTED, STANDING, VALUE, Frame
from . import cast as casts
from .cast import Branch, Cast
from .order import Lane
from .route import RESENT, Route, gone, read_route, route_prefix, with_order, with_route

if TYPE_CHECKING:
    from .gateway import Gateway

# flags of REPLIES: all below have answered; a host below is lost; not to be held back
DONE, LOST, PROMPT = 1, 2, 4
# bytes of an answer that may wait for others; a larger one goes straight to the caller
COMBINED = 64 * 1024
LINGER = 0.001  # seconds that an answer waits for others, in each gateway on its way
_CLOSING = 0.05  # seconds in which casts that are over are gathered
_AT_ONCE = 0.8  # seconds in which a host that is asked again says that it is there, at least
_AVOIDED = 60.0  # seconds in which a host that another has lost is handed calls by the root itself
# more seconds for each host that is asked at the same time: the root may have to dial it
_EACH = 0.004


class Casting:
    """The casts of one gateway.

    Args:
        gateway: What it is a part of.
        fanout: Most hosts that a cast of this host is handed to by one.
        first: Number of the first one; by default one that no other life of this host has used.
    """

    def __init__(self, gateway: Gateway, fanout: int, first: int | None = None) -> None:
        self._gateway = gateway
        self._outside = gateway.outside
        self._fanout = fanout
        self._casts: dict[tuple[str, int], Cast] = {}
        self._ids = itertools.count(first or int.from_bytes(os.urandom(4), "big") << 24 | 1)
        self._closing: dict[str, list[tuple[str, int]]] = {}
        # hosts that were asked again, and have not said anything since
        self._doubted: dict[str, object] = {}
        self._avoided: dict[str, object] = {}  # hosts that another has lost, but not this one

    def __len__(self) -> int:
        return len(self._casts)

    def standing(self, host: str, number: int) -> bool:
        """Return whether that cast of another host is a standing one."""
        cast = self._casts.get((host, number))
        return cast is not None and cast.standing

    def watches(self, host: str) -> bool:
        """Return whether a standing cast of another host is passed on here."""
        return any(cast.standing and cast.source.host == host for cast in self._casts.values())

    # down

    def begin(self, frame: Frame) -> None:
        """A process of this host calls processes of others."""
        header, meta = casts.split_header(frame)
        call = frame._replace(kind=CALL, flags=frame.flags & ~ROUTED, meta=meta)
        entries = casts.read_table(header.table)
        direct = [
            entry
            for entry in entries
            if not self._is_dialed(entry.host) or _is_unwatched(header.source, call)
        ]
        if direct:  # one by one
            for entry in direct:
                for proc, rank in zip(entry.procs, entry.ranks, strict=True):
                    route = Route(ProcAddress(entry.host, proc), header.source)
                    # STANDING says on the way that a host may have yet to start
                    self._gateway.from_proc(with_route(call._replace(rank=rank), route))
            entries = tuple(entry for entry in entries if entry not in direct)
        if not entries:
            return
        alone = [entry for entry in entries if entry.host in self._avoided]
        if alone:
            entries = (*alone, *(entry for entry in entries if entry.host not in self._avoided))
        if alone or direct:
            header = header._replace(table=casts.pack_table(entries))
        orders = array(
            "Q", [self._gateway.numbering.next(header.source, entry.host) for entry in entries]
        )
        # the fanout goes with the cast: hosts with another setting must split its table alike, as
        # the root computes who is below whom
        header = header._replace(id=next(self._ids), orders=orders, fanout=self._fanout)
        cast = Cast(header, call, None, None, bool(frame.flags & STANDING))
        self._casts[cast.key] = cast
        for entry in entries:
            self._gateway.asks(header.source, entry.host, True)
        singles = [Branch(entry.host, index, index + 1) for index, entry in enumerate(alone)]
        for branch in (*singles, *casts.split(entries, len(alone), len(entries), self._fanout)):
            self._hand_down(cast, call, header, branch)

    def _is_dialed(self, host: str) -> bool:
        return has_address(host) and self._gateway.via is None and host not in self._gateway.names

    def _hand_down(
        self, cast: Cast, call: Frame | None, header: casts.Header, branch: Branch, again: int = 0
    ) -> None:
        assert call is not None
        cast.branches[branch.host] = branch
        cast.waiting.add(branch.host)
        call = call._replace(flags=call.flags | again)
        self._outside.to_host(
            branch.host, casts.with_header(call, casts.part(header, branch.start, branch.end))
        )

    def came(self, neighbour: str, frame: Frame) -> None:
        """A host above hands down a call, or the root asks again."""
        header, meta = casts.split_header(frame)
        source, again = header.source, bool(frame.flags & AGAIN)
        self._gateway.found_way(source.host, neighbour, straight=again or neighbour == source.host)
        cast = self._casts.get((source.host, header.id))
        call = frame._replace(kind=CALL, flags=frame.flags & ~AGAIN, meta=meta)
        name = casts.read_table(header.table)[0].host
        if cast is None:
            cast = self._take(neighbour, header, call)
        elif cast.own is not None and cast.own.host != name:
            self._refuse_name(name, cast, neighbour, header, call)
            return
        elif again:
            self._pass_loss_down(cast)
            for reply in cast.start_again(neighbour):
                self._gateway.pass_on(read_route(reply)[0], with_order(reply, RESENT))
        if again:
            self._send_up(cast, prompt=True, at_once=True)
        elif cast.done and not cast.told:
            self._flush(cast)

    def _take(self, neighbour: str, header: casts.Header, call: Frame) -> Cast:
        entries, source, order = casts.read_table(header.table), header.source, header.orders[0]
        lane = Lane(source, entries[0].host)
        cast = Cast(header, call, entries[0], neighbour, bool(call.flags & STANDING))
        self._casts[cast.key] = cast
        for branch in casts.split(entries, 1, len(entries), header.fanout):
            self._hand_down(cast, call, header, branch)
        if not self._gateway.reordering.has_passed(lane, order):
            cast.expect()
            self._gateway.in_order(lane, order, cast)
        elif neighbour == source.host:
            # the root still wants answers, and this host has forgotten the call
            failure = Failure(
                LINK, "it had been out of contact, and has given up the call", proc=entries[0].host
            )
            cast.answered(gone(source, ProcAddress(entries[0].host, AGENT), failure))
        return cast

    def _refuse_name(
        self, name: str, cast: Cast, neighbour: str, header: casts.Header, call: Frame
    ) -> None:
        """The list of hosts has this one twice: the host of the second name is as if lost; those
        below it get the call.
        """
        entries = casts.read_table(header.table)
        for branch in casts.split(entries, 1, len(entries), header.fanout):
            self._hand_down(cast, call, header, branch)
        assert cast.own is not None
        failure = Failure(
            LINK, f"it is {cast.own.host} by another name: attach each worker once", proc=name
        )
        self._gateway.tell(cast.source, ProcAddress(name, AGENT), failure)
        names = cast.names(name)
        self._outside.to_host(
            neighbour, Frame(REPLIES, DONE | PROMPT, 0, 0, 0, cast.id, names, b"")
        )

    def hand_over(self, cast: Cast) -> None:
        """Hand a cast over, when its turn in the order of its sender has come."""
        call, own = cast.call, cast.own
        assert call is not None and own is not None
        cast.call = None
        call = call._replace(flags=call.flags & ~STANDING | ROUTED)
        frames = []
        for proc, rank in zip(own.procs, own.ranks, strict=True):
            address = ProcAddress(own.host, proc)
            self._gateway.is_asked(address, cast.source)
            prefix = route_prefix(Route(address, cast.source, cast=cast.id))
            frames.append((address, call._replace(rank=rank, meta=prefix + call.meta)))
        for address, failure in self._outside.to_procs(frames):
            self._cannot_answer(cast, address, failure)

    def dropped(self, cast: Cast) -> None:
        """Drop a cast that waits for lost messages: its turn will never come."""
        cast.call = None
        failure = Failure(LINK, "it has lost messages on their way to it", proc=cast.source.host)
        for proc in list(cast.ranks):
            assert cast.own is not None
            self._cannot_answer(cast, ProcAddress(cast.own.host, proc), failure)

    def _cannot_answer(self, cast: Cast, address: ProcAddress, failure: Failure) -> None:
        cast.ranks.pop(address.proc, None)
        if cast.over:
            self._gateway.tell(cast.source, address, failure)
        else:
            cast.answered(gone(cast.source, address, failure))
            self._flush(cast, prompt=True)

    # up

    def collect(self, route: Route, frame: Frame) -> bool:
        """Let an answer wait for others; False if it is to be sent by itself."""
        cast = self._casts.get((route.to.host, route.cast))
        if cast is None or cast.parent is None or cast.ranks.pop(route.source.proc, None) is None:
            return False
        # large answers go by themselves: to gather them would copy them at each host on the way
        if len(frame.payload) + sum(map(len, frame.buffers)) <= COMBINED:
            cast.answered(frame)
        else:
            cast.answered_itself(frame)
            self._gateway.pass_on(route, frame)
        self._flush(cast, prompt=frame.flags & ~(ROUTED | PRINTED) != VALUE)
        return True

    def proc_ended(self, proc: str, asked: Container[Lane], failure: Failure) -> set[Lane]:
        """Answer for a process of this host; returns who is told so, after all that it has said."""
        told = set()
        for cast in list(self._casts.values()):
            own = cast.own
            if own is None:
                continue
            lane = Lane(cast.source, own.host)
            if proc in cast.ranks or (cast.standing and lane in asked):
                self._cannot_answer(cast, ProcAddress(own.host, proc), failure)
                told.add(lane)
        return told

    def replies_came(self, frame: Frame) -> None:
        """A host below has answers, or has lost one below itself."""
        host, proc, below = frame.meta.decode().split("\0")
        self._doubted.pop(below, None)
        cast = self._casts.get((host, frame.request))
        if cast is None:
            self._late_replies(ProcAddress(host, proc), frame)
        elif below not in cast.branches:
            pass  # it was asked again by the root, and says all of it once more
        elif frame.flags & LOST:
            self._report_lost(cast, bytes(frame.payload).decode())
        else:
            if frame.payload:
                cast.combine(bytes(frame.payload))
            if frame.flags & DONE:
                cast.waiting.discard(below)
            self._flush(cast, prompt=bool(frame.flags & PROMPT))

    def _late_replies(self, source: ProcAddress, frame: Frame) -> None:
        """Pass on replies to a cast that is over: a process has ended since, or answers twice."""
        if not frame.payload or frame.flags & LOST:
            return
        if source.host in self._gateway.names:
            self._outside.answer_all(source.proc, casts.resent(bytes(frame.payload)))
        else:
            hop = self._gateway.way_back(source.host)
            if hop is not None:
                self._outside.to_host(hop, frame)

    def _flush(self, cast: Cast, prompt: bool = False) -> None:
        """Send on the gathered answers: when all are there, when it is urgent, or soon."""
        if cast.done or prompt:
            self._send_up(cast, prompt)
        elif not cast.lingers:
            cast.lingers = True
            self._outside.call_later(LINGER, lambda: self._lingered(cast))

    def _lingered(self, cast: Cast) -> None:
        cast.lingers = False
        self._send_up(cast, prompt=False)

    def _send_up(self, cast: Cast, prompt: bool, at_once: bool = False) -> None:
        # an orphan keeps its answers until the root asks again, or is given up
        if cast.orphaned or cast.over:
            return
        replies, done = cast.take(), cast.done
        if cast.parent is None:
            if replies:
                self._outside.answer_all(
                    cast.source.proc, casts.resent(replies) if cast.again else replies
                )
            if done and not cast.standing:
                self._over(cast)
        elif replies or at_once or (done and not cast.told):
            cast.told = done
            flags = (DONE if done else 0) | (PROMPT if prompt else 0)
            self._outside.to_host(
                cast.parent, Frame(REPLIES, flags, 0, 0, 0, cast.id, cast.names(), replies)
            )

    # over

    def ended(self, source: ProcAddress) -> None:
        """Drop the casts of a process of this host that has ended."""
        for cast in [
            cast for cast in self._casts.values() if cast.source == source and cast.parent is None
        ]:
            self._over(cast)

    def withdraw(self, source: ProcAddress, hosts: set[str]) -> None:
        """A process does not want these hosts to be watched over for it any more."""
        for cast in list(self._casts.values()):
            if cast.header is None or not cast.standing or cast.source != source:
                continue
            if {entry.host for entry in casts.read_table(cast.header.table)} <= hosts:
                self._over(cast)
        self.send_closing()

    def close(self) -> None:
        """This host leaves: its casts are over."""
        for cast in [cast for cast in self._casts.values() if cast.parent is None]:
            self._over(cast)
        self.send_closing()

    def _over(self, cast: Cast) -> None:
        """Let the hosts below forget a cast that no caller waits for."""
        cast.over = True
        self._casts.pop(cast.key, None)
        for host in cast.branches:
            self._close(cast, host)

    def _close(self, cast: Cast, host: str) -> None:
        # gathered for a moment: a loop of calls ends casts as often as it makes them
        if not self._closing:
            self._outside.call_later(_CLOSING, self.send_closing)
        self._closing.setdefault(host, []).append(cast.key)

    def send_closing(self) -> None:
        """Tell the hosts below which casts are over."""
        closing, self._closing = self._closing, {}
        for host, keys in closing.items():
            self._outside.to_host(host, casts.close_frame(keys))

    def close_came(self, neighbour: str, frame: Frame) -> None:
        """Casts are over, or their root is lost from above; those of another parent do not care."""
        for key in pickle.loads(frame.payload):
            cast = self._casts.get(key)
            if cast is None or cast.parent != neighbour:
                continue
            if frame.flags & LOST:
                self._orphan(cast, neighbour, host_lost(key[0], "it is out of contact"))
            else:
                self._over(cast)
                if cast.standing:
                    self._watch_ended(key[0], Failure(LINK, "it has left", proc=key[0]))

    def _watch_ended(self, host: str, failure: Failure) -> None:
        if not self.watches(host):
            self._gateway.host_gone(host, failure)

    # lost

    def link_lost(self, host: str, failure: Failure) -> None:
        """A link is lost: nothing sent to the neighbour will arrive, nor what it has sent."""
        self._doubted.pop(host, None)
        self._avoided.pop(host, None)
        self._closing.pop(host, None)
        for cast in list(self._casts.values()):
            if cast.parent is None:
                cast.gone.add(host)
            if cast.parent == host and cast.source.host == host:
                self._pass_loss_down(cast)
                cast.branches.clear()
                self._over(cast)
            elif cast.parent == host:
                self._orphan(cast, host, failure)
            elif host in cast.branches:
                self._lost_below(cast, host)

    def _lost_below(self, cast: Cast, host: str) -> None:
        if cast.parent is None:
            singles = cast.below(host)
            self._let_go(cast, host)
            self._ask_again(cast, singles)
        else:
            self._let_go(cast, host)
            self._report_lost(cast, host)

    @staticmethod
    def _let_go(cast: Cast, host: str) -> None:
        del cast.branches[host]
        cast.waiting.discard(host)

    def _report_lost(self, cast: Cast, host: str) -> None:
        if cast.parent is None:
            self._avoid(host)
            self._ask_again(cast, cast.below(host))
        elif not cast.orphaned:
            lost = Frame(REPLIES, LOST, 0, 0, 0, cast.id, cast.names(), host.encode())
            self._outside.to_host(cast.parent, lost)
            self._flush(cast, prompt=True)

    def _avoid(self, host: str) -> None:
        time = self._avoided[host] = object()

        def forget() -> None:
            # else it was lost once more since, and a later timer forgets it
            if self._avoided.get(host) is time:
                del self._avoided[host]

        self._outside.call_later(_AVOIDED, forget)

    def _ask_again(self, cast: Cast, singles: Sequence[Branch]) -> None:
        """The root hands the call to each of these itself, unless they have it or are lost."""
        assert cast.header is not None
        cast.again = True
        asked = [
            single
            for single in singles
            if single.host not in cast.gone and single.host not in cast.branches
        ]
        time = object()
        for single in asked:
            self._hand_down(cast, cast.call, cast.header, single, AGAIN)
            self._doubted.setdefault(single.host, time)
        if asked:
            hosts = [single.host for single in asked]
            at_once = max(_AT_ONCE, self._gateway.reconnect / 5) + _EACH * len(hosts)
            self._outside.call_later(at_once, lambda: self._not_at_once(hosts, time))
        self._flush(cast, prompt=True)

    def _not_at_once(self, hosts: Sequence[str], time: object) -> None:
        for host in hosts:
            # else it has answered, or was asked again later
            if self._doubted.get(host) is time:
                reason = (
                    "who passed calls on to it is lost, or has lost it, and it does not answer when"
                    " asked directly"
                )
                self._outside.give_up(host, reason)

    def _pass_loss_down(self, cast: Cast) -> None:
        """Have the hosts below wait for the root, too."""
        for host in cast.branches:
            self._outside.to_host(host, casts.close_frame([cast.key], LOST))

    def _orphan(self, cast: Cast, parent: str, failure: Failure) -> None:
        """Wait for the root to ask again, which may be lost only for those above."""
        cast.orphaned = True
        self._pass_loss_down(cast)

        def check() -> None:
            if cast.orphaned and not cast.over and cast.parent == parent:
                self._over(cast)
                if cast.standing:
                    self._watch_ended(cast.source.host, failure)

        self._outside.call_later(self._gateway.orphan_patience, check)


def _is_unwatched(source: ProcAddress, call: Frame) -> bool:
    """Return whether only its own link tells the caller that a host has ended: answers through a
    port can't be counted, and the caller has no standing cast, as clients do.
    """
    return bool(call.request and call.flags & EXPLICIT) and has_address(source.host)
