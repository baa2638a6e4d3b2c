"""A simulated host.

It has a real gateway and real links, and processes that do nothing but answer.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from .._core.routing.cast import attaches, split_header
from .._core.routing.gateway import Gateway
from .._core.routing.route import Route, split_route, with_route
from .._core.supervision.failure import Failure
from .._core.wire.address import ProcAddress
from .._core.wire.frame import CALL, CAST, REPLY, STANDING, Frame
from .._core.wire.link_limits import Limits
from .._core.wire.link_table import Called, Cut, Deliver, Dial, LinkTable, Lost, Write
from .clock import Clock
from .network import Network, SimulatedStream

_TURNS = 20  # of a handshake


class Costs(NamedTuple):
    """Time that a gateway is busy, in seconds of CPU; it does one thing after the other.

    Attributes:
        arrival: For each frame that a link brings.
        departure: For each frame that goes out over a link.
        proc: For each call that is handed to a process.
        reply: For each answer of a process that is taken in.
        entry: For each host in the list of a cast that is handed on.
        answer: For each answer that the client reads.
        handshake: For each stream that a peer opens: TLS, and proofs. Several take turns, as in a
            real listener.
    """

    arrival: float = 0.0
    departure: float = 0.0
    proc: float = 0.0
    reply: float = 0.0
    entry: float = 0.0
    answer: float = 0.0
    handshake: float = 0.0


class Setting(NamedTuple):
    """The common settings of all hosts of a simulation."""

    clock: Clock
    network: Network
    chance: random.Random
    limits: Limits
    fanout: int
    orphans: float
    costs: Costs
    compute: tuple[float, float]
    answer: bytes
    # a message, by its number, has come to so many processes at that time
    arrived: Callable[[int, int, float], None]


class SimulatedHost:
    """See the module; it is the `Outside` of its gateway.

    Args:
        setting: Of the simulation.
        name: Its address.
        number: Of the host, from 1.
    """

    def __init__(self, setting: Setting, name: str, number: int) -> None:
        self.name = name
        self.alive = True
        self.powered = True  # a host without power does not even refuse
        self.spent = 0.0  # seconds of the present event
        self.busy = 0.0  # seconds in all
        self.streams: dict[int, SimulatedStream] = {}
        self.lost: dict[str, float] = {}  # other hosts that are gone, and since when
        self.disorder = 0  # messages that came twice, or out of order
        self._setting = setting
        self._clock = setting.clock
        self._network = setting.network
        self._table = LinkTable(
            name, lambda: name, setting.limits, partial(self._random_name, number)
        )
        self._timer_at = float("inf")
        self._free_at = 0.0
        self._jobs: deque[Callable[[], None]] = deque()
        self._carrying_out = False
        self._paused_since = self._paused_until = 0.0
        self._stood = 0.0  # seconds of pauses that count as none, as in `RunClock`
        self._missed: list[Callable[[], None]] = []  # what came in a pause
        self._missed_timers: list[Callable[[], None]] = []
        self._links = 0
        self._last: dict[tuple[str, ProcAddress], int] = {}
        self.gateway = Gateway(
            self, setting.fanout, 1, setting.limits.reconnect, setting.orphans, first_cast=1
        )
        self.gateway.names = {name}
        setting.network.hosts[name] = self

    def _random_name(self, number: int) -> str:
        self._links += 1
        return f"{number:08x}{self._links:08x}"

    @property
    def _ran(self) -> float:
        """Seconds in which its agent ran, as its links count them."""
        return self._clock.now - self._stood

    @property
    def links(self) -> int:
        """Links to other hosts."""
        return sum(1 for _ in self._table)

    def end(self, power: bool) -> None:
        """End its agent; without `power` no peer is told by a closed connection."""
        self.alive, self.powered = False, power
        for stream in list(self.streams.values()):
            if power:
                self._network.close(stream)
        self.streams.clear()

    def pause(self, seconds: float) -> None:
        """Freeze its agent, while its machine takes connections and bytes for it."""
        if self._clock.now >= self._paused_until:
            self._paused_since = self._clock.now
        self._paused_until = max(self._paused_until, self._clock.now + seconds)
        self._clock.at(self._paused_until, self._go_on)

    def _go_on(self) -> None:
        """Make up for the pause: first messages that came, then due timers, as a real one does."""
        if self._clock.now < self._paused_until:  # by another pause
            return
        self._stood += max(
            0.0, self._clock.now - self._paused_since - 2 * self._setting.limits.look
        )
        missed = [*self._missed, *self._missed_timers]
        self._missed, self._missed_timers = [], []
        for event in missed:
            if self.alive:
                event()

    # events

    def when_awake(self, event: Callable[[], None]) -> None:
        """Let something happen to its agent; after a pause, if it is in one."""
        if self._clock.now < self._paused_until:
            self._missed.append(event)
        else:
            event()

    def accept(self) -> int:
        return self._table.accepted(self._ran)

    def greet(self, stream: SimulatedStream, done: Callable[[], None], turns: int = _TURNS) -> None:
        """Prove identity to the peer that has opened `stream`, and have it prove its own.

        `done` is called, unless the stream is closed before the end.
        """
        cost = self._setting.costs.handshake
        if not cost or not turns:
            done()
        elif stream.open:
            self._when_free(lambda: self._greet_on(stream, done, turns - 1))

    def _greet_on(self, stream: SimulatedStream, done: Callable[[], None], turns: int) -> None:
        self.spent += self._setting.costs.handshake / _TURNS
        self.carry_out()
        if turns:
            self.greet(stream, done, turns)
        else:
            self._clock.at(self._free_at, done)

    def stream_answered(self, stream: SimulatedStream) -> None:
        self.when_awake(lambda: self._answered(stream))

    def _answered(self, stream: SimulatedStream) -> None:
        if self.alive and stream.open:
            self._table.answered(stream.number, self._ran)

    def stream_ready(self, stream: SimulatedStream) -> None:
        self.when_awake(lambda: self._ready(stream))

    def _ready(self, stream: SimulatedStream) -> None:
        if self.alive and stream.open:
            self._table.ready(stream.number, self._ran)
            self.carry_out()

    def stream_data(self, stream: SimulatedStream, data: bytes) -> None:
        self.when_awake(lambda: self._when_free(lambda: self._read(stream, data)))

    def _read(self, stream: SimulatedStream, data: bytes) -> None:
        if stream.open:
            self._clock.note(self.name, stream.number, len(data))
            self._table.data(stream.number, memoryview(data), self._ran)
            self.carry_out()

    def _when_free(self, job: Callable[[], None]) -> None:
        """Do it after all that came before, which takes time."""
        if not self._jobs and self._clock.now >= self._free_at:
            if self.alive:
                job()
            return
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._clock.at(self._free_at, self._next_job)

    def _next_job(self) -> None:
        if self.alive:
            self._jobs[0]()
        self._jobs.popleft()
        if self._jobs:
            self._clock.at(self._free_at, self._next_job)

    def stream_closed(self, stream: SimulatedStream, reason: str, refused: bool = False) -> None:
        self.when_awake(lambda: self._closed(stream, reason, refused))

    def _closed(self, stream: SimulatedStream, reason: str, refused: bool) -> None:
        if self.alive and self.streams.pop(stream.number, None) is not None:
            stream.open = False
            self._clock.note(self.name, stream.number, reason)
            self._table.closed(stream.number, reason, self._ran, refused=refused)
            self.carry_out()

    def _tick(self) -> None:
        if self._clock.now < self._paused_until:
            self._missed_timers.append(self._tick)
        elif self.alive and self._clock.now >= self._timer_at:
            self._timer_at = float("inf")
            # `due` and back again is not exactly the same number
            self._table.tick(self._ran + 1e-9)
            self.carry_out()

    def carry_out(self) -> None:
        """Do what the links say, and what follows from that; ends an event."""
        self._act()
        self._free_at = max(self._free_at, self._clock.now + self.spent)
        self.busy += self.spent
        self.spent = 0.0
        due = self._table.due
        if due is not None and due + self._stood < self._timer_at:
            self._timer_at = due + self._stood
            self._clock.at(self._timer_at, self._tick)

    def _act(self) -> None:
        if self._carrying_out:
            return
        self._carrying_out = True
        for instruction in self._table.take():
            if isinstance(instruction, Deliver):
                self.spent += self._setting.costs.arrival
                self.gateway.from_host(instruction.host, instruction.frame)
            elif isinstance(instruction, Write):
                stream = self.streams.get(instruction.stream)
                if stream is not None:
                    self._network.send(stream, b"".join(instruction.chunks))
            elif isinstance(instruction, Dial):
                self._dial(instruction.stream, instruction.host)
            elif isinstance(instruction, Cut):
                closed = self.streams.pop(instruction.stream, None)
                if closed is not None:
                    self._network.close(closed)
            elif isinstance(instruction, Lost):
                self._clock.note(self.name, "lost", instruction.host)
                self.gateway.link_lost(instruction.host, instruction.reason)
            elif isinstance(instruction, Called):
                self.gateway.names.add(instruction.name)
        self._carrying_out = False

    def _dial(self, number: int, host: str) -> None:
        if host in self._network.hosts and "://" in host:
            self.streams[number] = self._network.dial(self, number, host)
        else:
            self._table.closed(number, "it has no address", self._ran, final=True)

    # what its gateway acts on

    def to_host(self, host: str, frame: Frame) -> None:
        costs = self._setting.costs
        self.spent += costs.departure
        if costs.entry and frame.kind == CAST:
            self.spent += costs.entry * len(split_header(frame)[0].orders)
        self._table.send(host, self._table.pack(frame), self._ran, starting=attaches(frame))
        self._act()

    def give_up(self, host: str, reason: str) -> None:
        self._table.give_up(host, reason, self._ran)
        self._act()

    def to_procs(
        self, frames: Sequence[tuple[ProcAddress, Frame]]
    ) -> Sequence[tuple[ProcAddress, Failure]]:
        self.spent += self._setting.costs.proc * len(frames)
        answers = []
        self._setting.arrived(frames[0][1].target, len(frames), self._clock.now + self.spent)
        for address, routed in frames:
            route, frame = split_route(routed)
            # a host may be attached again that had let go
            if frame.kind == CALL and not frame.flags & STANDING:
                self._check_order(address.proc, route.source, frame.target)
            if frame.request:
                reply = Frame(REPLY, 0, frame.rank, 0, 0, frame.request, b"", self._setting.answer)
                answers.append(with_route(reply, Route(route.source, address, cast=route.cast)))
        if answers:
            least, most = self._setting.compute
            self._clock.after(
                self._setting.chance.uniform(least, most) + self.spent,
                partial(self.when_awake, partial(self._when_free, partial(self._answer, answers))),
            )
        return ()

    def _check_order(self, proc: str, source: ProcAddress, number: int) -> None:
        if number <= self._last.get((proc, source), 0):
            self.disorder += 1
        self._last[proc, source] = number

    def _answer(self, answers: list[Frame]) -> None:
        self.spent += self._setting.costs.reply * len(answers)
        for answer in answers:
            self.gateway.from_proc(answer)
        self.carry_out()

    def answer(self, proc: str, frame: Frame) -> None:
        """A worker's own processes ask nothing."""

    def answer_all(self, proc: str, frames: bytes) -> None:
        pass

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        pass

    def host_gone(self, host: str, failure: Failure) -> None:
        self.lost[host] = self._clock.now

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self._clock.after(seconds, lambda: self._later(function))

    def _later(self, function: Callable[[], None]) -> None:
        if self._clock.now < self._paused_until:
            self._missed_timers.append(partial(self._later, function))
        elif self.alive:
            function()
            self.carry_out()
