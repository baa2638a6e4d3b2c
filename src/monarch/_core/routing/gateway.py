"""The gateway of a host, a pure state machine: frames and events in, frames out.

A gateway passes on what processes of its host send elsewhere, hands what arrives to them in the
order of each sender (`order`), takes part in casts (`casting`), and tells processes of the end of
another, or of a host, that they have asked something, or that has asked them.

Hosts with an address, ``tcp://...``, are dialed. A host without one, such as a client's, is reached
over the link that its own frames come on. A host that knows it only by way of a cast asks it, up
the tree, to dial, and sends its frames then: a host in between that is lost would take it along.
Only what may get lost, credit and output, goes up the tree itself.

What ends each wait: a message that waits for one before it is given up after `patience` seconds: a
link may be away for `channel_reconnect_timeout`, and what comes over it then takes a moment. A host
that cannot be reached any more over the link that its frames came on gets `orphan_patience`, so
that what a client leaves ends within `mesh_orphan_timeout`, if there is time for others to find out.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..supervision.failure import LINK, Failure, host_lost
from ..wire.address import AGENT, ProcAddress, has_address
from ..wire.frame import CALL, CAST, CLOSE, CREDIT, DIAL, GONE, PORT, REPLIES, REPLY, URGENT, Frame
from .cast import Cast
from .casting import Casting
from .order import Lane, Numbering, Reordering
from .route import Route, gone, read_route, with_order, with_route

_RESUMED = 2.0  # seconds in which late messages come over a link that is back
_LATE = 60.0  # seconds after which nothing more is expected of a process that has ended
_ASKED = ""  # in place of the name of a process: each one there that the ended one has asked
_DIAL = Frame(DIAL, 0, 0, 0, 0, 0, b"", b"")


class Outside(Protocol):
    """The host as its gateway sees it: links, local processes, timers."""

    def to_host(self, host: str, frame: Frame) -> None:
        """Send over the link to a host, which is dialed if there is none."""

    def give_up(self, host: str, reason: str) -> None:
        """End the link to a host for both sides; `link_lost` follows."""

    def to_procs(
        self, frames: Sequence[tuple[ProcAddress, Frame]]
    ) -> Sequence[tuple[ProcAddress, Failure]]:
        """Send requests to processes of this host; returns those that are known to have ended."""

    def answer(self, proc: str, frame: Frame) -> None:
        """Send an answer to a process of this host that has sent a request."""

    def answer_all(self, proc: str, frames: bytes) -> None:
        """Send many, encoded one after the other."""

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        """Tell a process of this host who has ended: one that it asks, and that asks it."""

    def host_gone(self, host: str, failure: Failure) -> None:
        """A host is lost, or has left."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any: ...


class Gateway:
    """The gateway of one host.

    Args:
        outside: What it acts on.
        fanout: Most hosts that a cast is handed to by one.
        epoch: See `Numbering`.
        reconnect: Seconds for which a link may be away; may be changed.
        orphans: Seconds for which what a client has spawned may outlive it; may be changed.
        first_cast: Number of the first one; by default one that no other life of this host has
            used.
    """

    def __init__(
        self,
        outside: Outside,
        fanout: int,
        epoch: int,
        reconnect: float,
        orphans: float,
        first_cast: int | None = None,
    ) -> None:
        self.names: set[str] = set()  # what this host is called by others
        self.via: str | None = None  # the only host that can be dialed, where that is so
        self.outside = outside
        self.reconnect = reconnect
        self.orphans = orphans
        self.numbering = Numbering(epoch)
        self.reordering = Reordering(self._dropped)
        self._casting = Casting(self, fanout, first_cast)
        # hosts without an address, and the neighbour that each is reached through; None since that
        # was lost
        self._behind: dict[str, str | None] = {}  # its own frames came from there
        self._above: dict[str, str | None] = {}  # casts came from there
        self._held: dict[str, list[Frame]] = {}  # what waits until one of them dials
        # host -> who sends there through this gateway, and whether more than answers; dicts keep
        # their order, so that runs can be repeated
        self._asking: dict[str, dict[ProcAddress, bool]] = {}
        # process here -> who has talked to it, by which of our names
        self._asked: dict[str, dict[Lane, None]] = {}
        # where something was sent that waits for something before it
        self._incomplete: set[Lane] = set()

    @property
    def casts(self) -> int:
        """Casts that are not over yet."""
        return len(self._casting)

    @property
    def patience(self) -> float:
        """Seconds, see above."""
        return self.reconnect + _RESUMED

    @property
    def orphan_patience(self) -> float:
        """Seconds, see above."""
        return max(1.0, self.reconnect / 2, self.orphans - self.reconnect)

    # from processes of this host

    def from_proc(self, frame: Frame) -> None:
        """A process of this host sends a frame elsewhere."""
        if frame.kind == CAST:
            self._casting.begin(frame)
            return
        route, _ = read_route(frame)
        if frame.kind == REPLY and route.cast and self._casting.collect(route, frame):
            return
        if route.to.host in self.names:  # by another name of this very host
            self._arrived(route, frame)
            return
        # urgent ones get no number: they may overtake those that wait for their turn
        if frame.kind in (CALL, PORT) and not frame.flags & URGENT:
            frame = with_order(frame, self.numbering.next(route.source, route.to.host))
        self.pass_on(route, frame)

    def proc_ended(self, address: ProcAddress, failure: Failure) -> None:
        """Tell all who have talked to a local process that it ended, after all that it has said."""
        asked = self._asked.pop(address.proc, {})
        told = self._casting.proc_ended(address.proc, asked, failure)
        for lane in asked:
            if lane not in told:
                self.tell(lane.source, ProcAddress(lane.host, address.proc), failure)
        for host, sources in list(self._asking.items()):
            if sources.pop(address, False):  # last, so that those who have asked it hear first
                self.tell(ProcAddress(host, _ASKED), address, failure)
        self._casting.ended(address)
        if not failure.restarts:
            # not of one that starts again: receivers compare numbers of its next incarnation with
            # these
            self.numbering.forget(address)

    def withdraw(self, source: ProcAddress, hosts: Sequence[str]) -> None:
        """A process does not want these hosts to be watched over for it any more."""
        self._casting.withdraw(source, set(hosts))
        for host in hosts:  # which may forget what it has had from here
            self.numbering.lost(host)

    def close(self) -> None:
        """This host leaves: its casts are over."""
        self._casting.close()

    # from other hosts

    def from_host(self, neighbour: str, frame: Frame) -> None:
        """A frame has come over a link."""
        if frame.kind == CAST:
            self._casting.came(neighbour, frame)
        elif frame.kind == REPLIES:
            self._casting.replies_came(frame)
        elif frame.kind == CLOSE:
            self._casting.close_came(neighbour, frame)
        else:
            route, _ = read_route(frame)
            # before the frame: its answer must find the way
            self.found_way(route.source.host, neighbour, straight=True)
            if route.to.host in self.names:
                self._arrived(route, frame)
            else:
                self.pass_on(route, frame)

    def link_lost(self, host: str, reason: str) -> None:
        """A link is lost: nothing that is sent to a host will arrive; called once for each link."""
        failure = host_lost(host, reason)
        self._casting.link_lost(host, failure)
        self.host_gone(host, failure)
        if host == self.via:
            for other in list(self._asking):
                self.host_gone(other, failure)
        for ways in (self._behind, self._above):
            for other in [other for other, neighbour in ways.items() if neighbour == host]:
                ways[other] = None
                self._look_for_a_way(other, failure)

    # hosts without an address

    def way_back(self, host: str) -> str | None:
        """The neighbour through which a host is reached, as far as is known."""
        return host if has_address(host) else self._behind.get(host) or self._above.get(host)

    def found_way(self, host: str, neighbour: str, straight: bool) -> None:
        """Something of `host` has come from a neighbour.

        Args:
            straight: Sent by its gateway to this host; otherwise it was passed down a tree.
        """
        if has_address(host) or host in self.names:
            return
        if not straight:
            if self._above.get(host) is None:
                self._above[host] = neighbour
                if host in self._held:
                    self._ask_to_dial(host)
            return
        # the last way counts: the host has just used it
        self._behind[host] = neighbour
        for frame in self._held.pop(host, ()):
            self.outside.to_host(neighbour, frame)

    def _hold(self, host: str, frame: Frame) -> None:
        held = self._held.setdefault(host, [])
        held.append(frame)
        if len(held) == 1:
            self._ask_to_dial(host)

    def _ask_to_dial(self, host: str) -> None:
        hop = self._above.get(host)
        if hop is not None:
            here = ProcAddress(min(self.names), AGENT)
            route = Route(ProcAddress(host, AGENT), here)
            self.outside.to_host(hop, with_route(_DIAL, route))

    def _look_for_a_way(self, host: str, failure: Failure) -> None:
        """Ask the root, if it is still there, to hand casts down again by another way."""

        def check() -> None:
            if host in {**self._behind, **self._above} and self.way_back(host) is None:
                self.host_gone(host, failure)

        self.outside.call_later(self.orphan_patience, check)

    # one to one

    def pass_on(self, route: Route, frame: Frame) -> None:
        """Send a frame on its way to another host."""
        host = route.to.host
        if has_address(host):
            hop = self.via or host
        elif host in self._behind or host in self._above:
            straight = self._behind.get(host)
            if (
                straight is None
                and route.source.host in self.names
                and not self._may_get_lost(route, frame)
            ):
                self._hold(host, frame)
                return
            hop = straight or self._above.get(host) or ""
        else:
            if self._is_owed_an_end(route, frame):
                reason = (
                    "there is no way to it from here: it has no address, and no link to it is left"
                )
                self.tell(route.source, ProcAddress(host, AGENT), host_lost(host, reason))
            return
        if self._is_owed_an_end(route, frame):
            self.asks(route.source, host, frame.kind in (CALL, PORT))
        if hop:
            self.outside.to_host(hop, frame)

    def _is_owed_an_end(self, route: Route, frame: Frame) -> bool:
        """Return whether the sender must be told if the receiver's host is lost.

        Hosts that pass a frame up a tree don't tell: they may have lost what others reach.
        """
        if route.source.host in self.names:
            return frame.kind != GONE
        return frame.kind in (CALL, PORT) or (frame.kind == REPLY and not route.cast)

    def _may_get_lost(self, route: Route, frame: Frame) -> bool:
        """Credit is given again and again; what comes after the answer to a standing cast is
        output.
        """
        return frame.kind == CREDIT or (
            frame.kind == REPLY and self._casting.standing(route.to.host, route.cast)
        )

    def _arrived(self, route: Route, frame: Frame) -> None:
        if frame.kind == GONE:
            self._heard_gone(route, frame)
            if route.to.proc != _ASKED:
                self.outside.gone(route.to, frame)
        elif frame.kind == DIAL:
            if has_address(route.to.host):
                return  # the answer to what this host has asked: the way is known now
            back = Route(route.source, route.to)
            self.pass_on(back, with_route(_DIAL, back))
        elif frame.kind not in (CALL, PORT):
            self.outside.answer(route.to.proc, frame)
        elif route.order:
            self.in_order(Lane(route.source, route.to.host), route.order, frame)
        else:
            self._hand_over(frame)

    def in_order(self, lane: Lane, order: int, message: Frame | Cast) -> None:
        """Hand a message on when it is its turn."""
        ready = self.reordering.arrived(lane, order, message)
        for early in ready:
            self._hand_over(early)
        if not ready and self.reordering.waits_for(lane) and lane not in self._incomplete:
            self._incomplete.add(lane)
            self._wait_for_the_rest(lane, self.reordering.waits_for(lane))

    def _wait_for_the_rest(self, lane: Lane, order: int) -> None:
        """A message is lost for good: only if one of two hosts took the other for lost, and was
        wrong.
        """

        def check() -> None:
            waits_for = self.reordering.waits_for(lane)
            if waits_for > order:  # it has got on since
                self._wait_for_the_rest(lane, waits_for)
                return
            self._incomplete.discard(lane)
            if waits_for:
                self.reordering.forget(lane)
                lost = Failure(
                    LINK, "it has lost messages on their way to it", proc=lane.source.host
                )
                self.tell(lane.source, ProcAddress(lane.host, AGENT), lost)

        self.outside.call_later(self.patience, check)

    def _hand_over(self, message: Frame | Cast) -> None:
        if isinstance(message, Cast):
            self._casting.hand_over(message)
            return
        route, _ = read_route(message)
        self.is_asked(route.to, route.source)
        for _, failure in self.outside.to_procs([(route.to, message)]):
            self.tell(route.source, route.to, failure)

    def _dropped(self, message: Frame | Cast) -> None:
        if isinstance(message, Cast):
            self._casting.dropped(message)

    # who has talked to whom, and is told of ends

    def asks(self, source: ProcAddress, host: str, calls: bool) -> None:
        """A process sends something to a host through this gateway: a call, or an answer."""
        sources = self._asking.setdefault(host, {})
        sources[source] = calls or sources.get(source, False)

    def is_asked(self, address: ProcAddress, source: ProcAddress) -> None:
        """A process of this host gets something from another host's."""
        self._asked.setdefault(address.proc, {})[Lane(source, address.host)] = None

    def tell(self, to: ProcAddress, who: ProcAddress, failure: Failure) -> None:
        """Tell a process, wherever it is, that another, or a host, has ended."""
        frame = gone(to, who, failure)
        if to.host in self.names:
            self.outside.gone(to, frame)
        else:
            self.pass_on(Route(to, who), frame)

    def _heard_gone(self, route: Route, frame: Frame) -> None:
        failure: Failure = pickle.loads(frame.payload)
        who = route.source
        if who.proc != AGENT:
            self._asked.get(route.to.proc, {}).pop(Lane(who, route.to.host), None)  # it is told
            if route.to.proc == _ASKED:
                self._caller_ended(who, failure)
            if not failure.restarts:
                self.outside.call_later(_LATE, lambda: self._forget_caller(who, failure))
        elif has_address(who.host):
            # its next life numbers anew, and expects the same
            self.numbering.lost(who.host)
        else:
            self.host_gone(who.host, failure)

    def _caller_ended(self, who: ProcAddress, failure: Failure) -> None:
        """A process of another host has ended: tell those here that it has asked something."""
        for proc, lanes in list(self._asked.items()):  # telling one may show that it has ended
            for name in self.names:
                if Lane(who, name) in lanes:
                    del lanes[Lane(who, name)]
                    to = ProcAddress(name, proc)
                    self.outside.to_procs([(to, gone(to, who, failure))])

    def _forget_caller(self, who: ProcAddress, failure: Failure) -> None:
        for name in self.names:
            self.reordering.forget(Lane(who, name))
        self._caller_ended(who, failure)  # again: something of it may have come late

    def host_gone(self, host: str, failure: Failure) -> None:
        """A host is lost, or has left: all who have to do with it are told."""
        self._behind.pop(host, None)
        if not self._casting.watches(host):  # else those below may still reach it through here
            self._above.pop(host, None)
        self._held.pop(host, None)
        self.numbering.lost(host)
        who = ProcAddress(host, AGENT)
        asking = self._asking.pop(host, {})
        for proc, lanes in self._asked.items():
            there = [lane for lane in lanes if lane.source.host == host]
            if there:
                asking[ProcAddress(there[0].host, proc)] = False
            for lane in there:
                del lanes[lane]
        stood = self.reordering.leave(host)
        if has_address(host):  # another may answer there next, which numbers anew
            self.reordering.forget_quiet(stood)
        else:
            self.outside.call_later(_LATE, lambda: self.reordering.forget_quiet(stood))
        for address in asking:
            self.tell(address, who, failure)
        self.outside.host_gone(host, failure)
