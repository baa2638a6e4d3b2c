"""The simulated client: it calls processes of all hosts, and notes answers and losses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from .._core.routing.cast import Entry, Header, pack_table, with_header
from .._core.routing.route import RESENT, Route, read_route, split_route, with_route
from .._core.supervision.failure import Failure
from .._core.wire.address import AGENT, ProcAddress
from .._core.wire.frame import CALL, GONE, REPLY, ROUTED, STANDING, Decoder, Frame, decode
from .worker import Setting, SimulatedHost


class Cast:
    """A call, or a broadcast, on its way.

    Attributes:
        started: When it was sent, in seconds of simulated time.
        ended: When the last answer was there; None until then, and for a broadcast.
        answered: Ranks that have answered, each with the time.
        lost: Ranks on lost hosts, each with the time at which the loss was known.
        arrived: Processes that the message has come to.
        arrived_at: When it came to the latest of them.
    """

    def __init__(self, started: float, hosts: dict[str, Sequence[int]], answers: bool) -> None:
        self.started = started
        self.ended: float | None = None
        self.answered: dict[int, float] = {}
        self.lost: dict[int, float] = {}
        self.arrived = 0
        self.arrived_at = started
        self.twice = 0  # answers that came once more, and were not marked as such
        self._hosts = hosts if answers else {}
        self._missing = sum(map(len, self._hosts.values()))

    def __repr__(self) -> str:
        state = "waits" if self.ended is None else f"took {self.seconds * 1000:.3g} ms"
        return (
            f"<Cast: {state}, {len(self.answered)} answered, {len(self.lost)} lost, {self._missing}"
            " missing>"
        )

    @property
    def done(self) -> bool:
        """True if every host has answered, or is known to be gone."""
        return not self._missing

    @property
    def seconds(self) -> float:
        """How long it took.

        Raises:
            RuntimeError: It has not ended.
        """
        if self.ended is None:
            raise RuntimeError("the cast has not ended; run the simulation until it has")
        return self.ended - self.started

    @property
    def missing(self) -> list[int]:
        """Ranks that have neither answered nor been lost."""
        known = {*self.answered, *self.lost}
        return [rank for ranks in self._hosts.values() for rank in ranks if rank not in known]

    def _answer(self, rank: int, now: float, again: bool) -> None:
        if rank in self.answered:
            self.twice += not again
        elif rank not in self.lost:
            self._settle(self.answered, rank, now)

    def _host_gone(self, host: str, now: float) -> None:
        for rank in self._hosts.get(host, ()):
            if rank not in self.answered and rank not in self.lost:
                self._settle(self.lost, rank, now)

    def _settle(self, where: dict[int, float], rank: int, now: float) -> None:
        where[rank] = now
        self._missing -= 1
        if not self._missing:
            self.ended = now


class Client(SimulatedHost):
    """See the module."""

    def __init__(self, setting: Setting, name: str) -> None:
        super().__init__(setting, name, 0)
        self._open: dict[int, Cast] = {}
        self._requests = itertools.count(1)
        self._messages = itertools.count(1)
        self._address = ProcAddress(name, "client")
        self.sent: dict[int, Cast] = {}  # by the numbers of their messages
        self._tables: dict[int, tuple[Sequence[Entry], int, bytes]] = {}

    def attach(self, hosts: Sequence[str]) -> Cast:
        """Watch over hosts, and be watched over by them."""
        entries = [Entry(host, (AGENT,), (rank,)) for rank, host in enumerate(hosts)]
        return self.cast(entries, b"", answers=True, flags=STANDING)

    def cast(self, entries: Sequence[Entry], payload: bytes, answers: bool, flags: int = 0) -> Cast:
        """Call processes; those of hosts that are known to be gone count as lost at once."""
        now = self._clock.now
        cast = Cast(now, {entry.host: entry.ranks for entry in entries}, answers)
        request = 0
        if answers:
            request = next(self._requests)
            self._open[request] = cast
        for entry in entries:
            if entry.host in self.lost:
                cast._host_gone(entry.host, now)
        frame = Frame(CALL, flags | ROUTED, 0, self._number(cast), 0, request, b"method", payload)
        table = self._table_of(entries)
        if table and not cast.ended:
            header = Header(0, self._address, (), table)
            self._ask(lambda: self.gateway.from_proc(with_header(frame, header)))
        return cast

    def call_one(self, address: ProcAddress, rank: int, payload: bytes) -> Cast:
        """Call one process, over a link of its own."""
        cast = Cast(self._clock.now, {address.host: (rank,)}, True)
        if address.host in self.lost:
            cast._host_gone(address.host, self._clock.now)
            return cast
        request = next(self._requests)
        self._open[request] = cast
        frame = Frame(CALL, 0, rank, self._number(cast), 0, request, b"method", payload)
        routed = with_route(frame, Route(address, self._address))
        self._ask(lambda: self.gateway.from_proc(routed))
        return cast

    def _number(self, cast: Cast) -> int:
        number = next(self._messages)
        self.sent[number] = cast
        return number

    def _ask(self, something: Callable[[], None]) -> None:
        self.when_awake(lambda: self._when_free(lambda: self._say(something)))

    def _say(self, something: Callable[[], None]) -> None:
        something()
        self.carry_out()

    def _table_of(self, entries: Sequence[Entry]) -> bytes:
        known = self._tables.get(id(entries))
        if known is None or known[0] is not entries or known[1] != len(self.lost):
            alive = [entry for entry in entries if entry.host not in self.lost]
            known = self._tables[id(entries)] = (
                entries,
                len(self.lost),
                pack_table(alive) if alive else b"",
            )
        return known[2]

    # what comes back

    def answer(self, proc: str, frame: Frame) -> None:
        self.spent += self._setting.costs.answer
        route, frame = split_route(frame)
        if frame.kind == REPLY:
            cast = self._open.get(frame.request)
            if cast is not None:
                cast._answer(frame.rank, self._clock.now + self.spent, route.order == RESENT)
                if cast.done:
                    del self._open[frame.request]

    def answer_all(self, proc: str, frames: bytes) -> None:
        for data in Decoder(1 << 62).feed(memoryview(frames)):
            frame = decode(data)
            if frame.kind == GONE:
                self.gone(ProcAddress(self.name, proc), frame)
            else:
                self.answer(proc, frame)

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        who = read_route(frame)[0].source
        if who.proc == AGENT:
            self._lose(who.host)

    def host_gone(self, host: str, failure: Failure) -> None:
        self._lose(host)

    def _lose(self, host: str) -> None:
        if host in self.lost:
            return
        now = self.lost[host] = self._clock.now
        self._clock.note(self.name, "knows", host)
        for request, cast in list(self._open.items()):
            cast._host_gone(host, now)
            if cast.done:
                self._open.pop(request, None)
