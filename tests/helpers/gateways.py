"""Many gateways in one process, joined by links of memory: seeded delays, links and hosts that are
lost, a fake clock.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

from monarch._core.routing.cast import Entry, Header, pack_table, with_header
from monarch._core.routing.casting import COMBINED
from monarch._core.routing.gateway import Gateway
from monarch._core.routing.route import Route, read_route, split_route, with_route
from monarch._core.supervision.failure import EXITED, Failure
from monarch._core.wire.address import AGENT, ProcAddress
from monarch._core.wire.frame import (
    CALL,
    GONE,
    PORT,
    REPLY,
    ROUTED,
    STANDING,
    Decoder,
    Frame,
    decode,
    encode,
)

DETECT = (0.5, 4.0)  # seconds until the end of a link is noticed
RECONNECT = 4.0
PATIENCE = RECONNECT + 2.0
DIALS = 60.0  # seconds until a first dial is given up


class World:
    """Args:
    seed: Of everything that happens by chance.
    """

    def __init__(self, seed: int, fanout: int = 3, delay: float = 0.05) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.fanout = fanout
        self.delay = delay
        self.hosts: dict[str, Host] = {}
        self.links: dict[frozenset[str], Link] = {}
        self.cut: set[frozenset[str]] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def host(self, name: str, procs: int = 2) -> Host:
        host = self.hosts[name] = Host(self, name, procs)
        return host

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), function))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, function = heapq.heappop(self._events)
            function()
        self.now = until

    def lose_link(self, a: str, b: str) -> None:
        link = self.links.get(frozenset((a, b)))
        if link is not None:
            link.lose(*DETECT)

    def kill(self, name: str) -> None:
        self.hosts[name].alive = False
        for pair, link in list(self.links.items()):
            if name in pair:
                link.lose(*DETECT)


class Link:
    """What there is between two hosts until it is lost."""

    def __init__(self, world: World, ends: frozenset[str]) -> None:
        self.world = world
        self.ends = ends
        self.lost = False
        self.unaware = set(ends)  # those who do not know that it is lost
        self.last = dict.fromkeys(ends, 0.0)  # when the last frame to each arrives

    def send(self, to: str, frame: Frame) -> None:
        world = self.world
        if self.lost:
            return
        at = self.last[to] = max(
            self.last[to], world.now + world.random.expovariate(1 / world.delay)
        )
        (sender,) = self.ends - {to}
        data = b"".join((encode(frame)[0], *frame.buffers))

        def arrive() -> None:
            host = world.hosts[to]
            if not self.lost and host.alive:
                host.gateway.from_host(sender, decode(memoryview(data)))

        world.after(at - world.now, arrive)

    def lose(self, low: float, high: float) -> None:
        if self.lost:
            return
        self.lost = True
        for end in sorted(self.ends):
            self.world.after(self.world.random.uniform(low, high), lambda end=end: self.notice(end))  # type: ignore[misc]

    def notice(self, end: str) -> None:
        if end not in self.unaware:
            return
        self.unaware.discard(end)
        if self.world.links.get(self.ends) is self and not self.unaware:
            del self.world.links[self.ends]
        host = self.world.hosts[end]
        (other,) = self.ends - {end}
        if host.alive:
            host.gateway.link_lost(other, "its link is lost")


class Host:
    """A gateway, and processes that note what they get and answer it."""

    def __init__(self, world: World, name: str, procs: int) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.procs = [f"p{i}" for i in range(procs)]
        self.ended: dict[str, Failure] = {}
        self.got: dict[tuple[str, ProcAddress], list[int]] = {}  # (process here, sender) -> numbers
        self.answers: dict[int, dict[int, list[str]]] = {}  # request -> rank -> what came
        self.asked: dict[int, list[tuple[ProcAddress, int]]] = {}  # request -> who, rank
        self.callers: dict[int, str] = {}
        self.gone_hosts: set[str] = set()
        self.told: list[tuple[str, ProcAddress]] = []
        self.callers_ended: set[tuple[str, ProcAddress]] = set()
        self.large = False
        self.gateway = Gateway(self, world.fanout, 1000, RECONNECT, 10.0)
        self.gateway.names = {name}

    # what a gateway acts on

    def to_host(self, host: str, frame: Frame) -> None:
        assert host != self.name
        world, ends = self.world, frozenset((self.name, host))
        link = world.links.get(ends)
        if link is None or self.name not in link.unaware:
            if link is not None:  # the other side hears of the loss at once
                world.links.pop(ends, None)
                link.notice(host)
            link = world.links[ends] = Link(world, ends)
            if "://" not in host:
                link.lose(0.0, 0.001)
            elif not world.hosts[host].alive or ends in world.cut:
                link.lose(DIALS, DIALS)
        link.send(host, frame)

    def give_up(self, host: str, reason: str) -> None:
        link = self.world.links.get(frozenset((self.name, host)))
        if link is not None:
            link.lost = False  # however late that would have been noticed
            link.lose(0.0, 0.2)

    def to_procs(
        self, frames: Sequence[tuple[ProcAddress, Frame]]
    ) -> list[tuple[ProcAddress, Failure]]:
        ended = []
        for address, frame in frames:
            if address.proc in self.ended:
                ended.append((address, self.ended[address.proc]))
            else:
                self._get(address, *split_route(frame))
        return ended

    def _get(self, address: ProcAddress, route: Route, frame: Frame) -> None:
        if frame.kind == GONE:
            self.callers_ended.add((address.proc, route.source))
            return
        assert frame.kind in (CALL, PORT)
        assert frame.flags & STANDING == 0
        self.got.setdefault((address.proc, route.source), []).append(frame.target)
        if frame.request:
            size = 70_000 if self.large and self.world.random.random() < 0.3 else 10
            reply = Frame(REPLY, 0, frame.rank, 0, 0, frame.request, b"", b"x", [b"x" * size])
            back = Route(route.source, address, cast=route.cast)
            self.world.after(
                self.world.random.random() * 0.3,
                lambda: self._reply(with_route(reply, back), address.proc),
            )

    def _reply(self, frame: Frame, proc: str) -> None:
        if self.alive and proc not in self.ended:
            self.gateway.from_proc(frame)

    def answer(self, proc: str, frame: Frame) -> None:
        route, frame = split_route(frame)
        assert frame.kind == REPLY
        answers = self.answers[frame.request].setdefault(frame.rank, [])
        if route.order != 1 or not answers:  # else it is marked as one that may have come before
            answers.append("reply")

    def answer_all(self, proc: str, frames: bytes) -> None:
        for data in Decoder(1 << 40).feed(memoryview(frames)):
            frame = decode(data)
            assert len(frame.payload) + sum(map(len, frame.buffers)) <= COMBINED
            if frame.kind == GONE:
                self.gone(ProcAddress(self.name, proc), frame)
            else:
                self.answer(proc, frame)

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        who = read_route(frame)[0].source
        assert pickle.loads(frame.payload).explain()
        self.told.append((proc.proc, who))
        for request, asked in self.asked.items():
            for address, rank in asked:
                if address == who or (who.proc == AGENT and address.host == who.host):
                    self.answers[request].setdefault(rank, []).append("gone")

    def host_gone(self, host: str, failure: Failure) -> None:
        assert failure.explain()
        self.gone_hosts.add(host)

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any:
        self.world.after(seconds, lambda: function() if self.alive else None)

    # what processes do

    def call(
        self,
        proc: str,
        targets: Sequence[ProcAddress],
        number: int,
        *,
        request: int = 0,
        flags: int = 0,
    ) -> None:
        """One message to each of `targets`; `number` shows its place in the order."""
        source = ProcAddress(self.name, proc)
        frame = Frame(CALL, flags, 0, number, 0, request, b"meta", b"payload")
        if request:
            self.asked[request] = [(target, rank) for rank, target in enumerate(targets)]
            self.answers[request] = {}
            self.callers[request] = proc
            gone = {who for name, who in self.told if name == proc}
            for rank, target in enumerate(targets):
                if target in gone or target.agent in gone:
                    self.answers[request][rank] = ["gone"]
            targets = [
                target for target in targets if target not in gone and target.agent not in gone
            ]
        if len(targets) == 1 and not flags & STANDING:
            ranks = dict(self.asked.get(request, []))
            frame = frame._replace(rank=ranks.get(targets[0], 0))
            self.gateway.from_proc(with_route(frame, Route(targets[0], source)))
            return
        ranks = dict(self.asked.get(request, []))
        hosts: dict[str, tuple[list[str], list[int]]] = {}
        for target in targets:
            names, numbers = hosts.setdefault(target.host, ([], []))
            names.append(target.proc)
            numbers.append(ranks.get(target, 0))
        table = pack_table(
            [Entry(host, tuple(names), tuple(numbers)) for host, (names, numbers) in hosts.items()]
        )
        self.gateway.from_proc(
            with_header(frame._replace(flags=flags | ROUTED), Header(0, source, (), table))
        )

    def end(self, proc: str) -> None:
        failure = Failure(EXITED, "it has ended")
        self.ended[proc] = failure
        self.gateway.proc_ended(ProcAddress(self.name, proc), failure)


def unanswered(world: World) -> list[tuple[str, int, ProcAddress]]:
    """Who waits in vain: caller's host, request, and who has not answered."""
    return [
        (host.name, request, target)
        for host in world.hosts.values()
        if host.alive
        for request, asked in host.asked.items()
        if host.callers[request] not in host.ended
        for target, rank in asked
        if not host.answers[request].get(rank)
    ]


def untold(world: World) -> list[tuple[str, str, ProcAddress]]:
    """Who serves in vain: a host, its process, and the one that has asked that, and has ended."""
    found = []
    for host in world.hosts.values():
        told = {*host.told, *host.callers_ended}
        found += [
            (host.name, proc, source)
            for proc, source in host.got
            if host.alive and proc not in host.ended
            if source.proc in world.hosts[source.host].ended
            # the loss of a host says it of all its processes
            and source.host not in host.gone_hosts
            and told.isdisjoint([(proc, source), (proc, source.agent)])
        ]
    return found
