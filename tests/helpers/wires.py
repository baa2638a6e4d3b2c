"""A simulated network for link tables: time is a number, and streams delay, split, stall, lose and
end as told.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable

from monarch._core.wire.frame import CALL, NO_RANK, Bytes, Frame
from monarch._core.wire.link_limits import Limits
from monarch._core.wire.link_records import JOINED, Hello, Join, control, greeting
from monarch._core.wire.link_table import Called, Cut, Deliver, Dial, LinkTable, Lost, Up, Write

LIMITS = Limits(reconnect=4.0, attach=10.0, frame=1 << 20)


def frame_of(text: str, buffers: int = 0) -> Frame:
    return Frame(CALL, 0, NO_RANK, 1, 2, 3, b"", text.encode(), [text.encode() * 7] * buffers)


def text_of(frame: Frame) -> str:
    text = bytes(frame.payload).decode()
    assert all(bytes(buffer) == text.encode() * 7 for buffer in frame.buffers)
    return text


def all_got(host: Host) -> list[str]:
    return [text for got in host.got.values() for text in got]


class Pipe:
    """One stream: two hosts and their numbers for it."""

    def __init__(self, dialer: Host, listener: Host) -> None:
        self.ends = (dialer, listener)
        self.numbers: dict[Host, int] = {}
        # when the last thing sent to each arrives: nothing overtakes
        self.clear_at = {dialer: 0.0, listener: 0.0}
        self.coming: dict[Host, deque[Callable[[], None]]] = {dialer: deque(), listener: deque()}
        self.open = {dialer: True, listener: True}

    def other(self, host: Host) -> Host:
        return self.ends[1] if host is self.ends[0] else self.ends[0]


class Host:
    """A link table, what it was told to tell, and the streams that it has."""

    def __init__(self, wires: Wires, name: str, identity: str, limits: Limits = LIMITS) -> None:
        self.wires = wires
        self.name = name
        self.identity = identity
        self.alive = True
        self.frozen = False
        self.pipes: dict[int, Pipe] = {}
        self.got: dict[str, list[str]] = defaultdict(list)
        self.ups: list[str] = []
        self.lost: list[tuple[float, str, str]] = []
        self.called: list[str] = []
        self.dials = 0
        self.in_place = 0  # bytes that were received straight into the memory of a buffer
        uids = itertools.count(1)
        self.table = LinkTable(
            identity, lambda: self.name, limits, lambda: f"{identity}-{next(uids)}"
        )
        self._tick_at = float("inf")

    def __repr__(self) -> str:
        return f"<Host {self.name}>"

    def send(self, host: str, text: str, buffers: int = 0) -> None:
        self.table.send(host, self.table.pack(frame_of(text, buffers)), self.wires.now)
        self.act()

    def act(self) -> None:
        """Carry out what the table says, and wake it when it wants."""
        for instruction in self.table.take():
            match instruction:
                case Dial(number, host):
                    self.dials += 1
                    self.wires.connect(self, number, host)
                case Write(number, chunks):
                    if number in self.pipes:
                        self.wires.write(self.pipes[number], self, chunks)
                case Cut(number):
                    if number in self.pipes:
                        self.wires.close(self.pipes.pop(number), self)
                case Deliver(host, frame):
                    self.got[host].append(text_of(frame))
                case Up(host):
                    self.ups.append(host)
                case Lost(host, reason):
                    self.lost.append((self.wires.now, host, reason))
                case Called(name):
                    self.called.append(name)
        due = self.table.due
        if due is not None and due < self._tick_at:
            self._tick_at = due
            self.wires.at(due, lambda: self._tick(due))

    def _tick(self, due: float) -> None:
        if due != self._tick_at:
            return  # an earlier one has armed anew
        self._tick_at = float("inf")
        if self.alive:
            self.table.tick(self.wires.now)
            self.act()


class Wires:
    """Joins hosts by their names. Everything random comes from one seed."""

    def __init__(
        self,
        seed: int,
        delay: tuple[float, float] = (0.0001, 0.02),
        pieces: tuple[int, ...] = (1, 7, 40, 1000),
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.delay = delay
        self.pieces = pieces  # sizes that a write may be split into
        self.hosts: dict[str, Host] = {}  # by any name that leads there
        self.down: set[frozenset[str]] = set()  # pairs of names between which nothing passes
        self.unreachable: set[tuple[str, str]] = set()  # (dialer, listener): no new stream that way
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def host(self, name: str, identity: str = "", *aliases: str, limits: Limits = LIMITS) -> Host:
        host = Host(self, name, identity or f"id of {name}", limits)
        self.hosts.update(dict.fromkeys((name, *aliases), host))
        return host

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._order), do))

    def later(self, do: Callable[[], None]) -> None:
        self.at(self.now + self.random.uniform(*self.delay), do)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = until

    def run_until(self, condition: Callable[[], object], within: float) -> None:
        end = self.now + within
        while not condition():
            assert self._events and self._events[0][0] <= end, f"not within {within} s"
            self.now, _, do = heapq.heappop(self._events)
            do()

    def kill(self, host: Host) -> None:
        """Its process ends: the kernel closes its streams."""
        host.alive = False
        for name in [name for name, known in self.hosts.items() if known is host]:
            del self.hosts[name]
        for pipe in host.pipes.values():
            self.close(pipe, host)
        host.pipes.clear()

    def cut(self, a: Host, b: Host) -> None:
        """End every stream between two hosts, on both sides; what is on its way is lost."""
        for pipe in [pipe for pipe in a.pipes.values() if pipe.other(a) is b]:
            for host in pipe.ends:
                pipe.open[host] = False
                # bound now
                self.later(lambda host=host, pipe=pipe: self._ended(pipe, host, "cut in a test"))  # type: ignore[misc]

    # what hosts do

    def passes(self, a: Host, b: Host) -> bool:
        return frozenset((a.name, b.name)) not in self.down

    def connect(self, dialer: Host, number: int, name: str) -> None:
        def arrive() -> None:
            listener = self.hosts.get(name)
            if listener is None:
                return self._failed(dialer, number, "nothing listens there", True)
            if (
                not self.passes(dialer, listener)
                or (dialer.name, listener.name) in self.unreachable
            ):
                self.at(
                    self.now + 1,
                    lambda: self._failed(dialer, number, "it could not be reached", False),
                )
                return None
            pipe = Pipe(dialer, listener)
            pipe.numbers[listener] = there = listener.table.accepted(self.now)
            listener.pipes[there] = pipe
            pipe.numbers[dialer] = number
            dialer.pipes[number] = pipe
            self._in_order(pipe, dialer, lambda: self._ready(pipe, dialer, number))
            listener.act()
            return None

        self.later(arrive)

    def _ready(self, pipe: Pipe, dialer: Host, number: int) -> None:
        if pipe.open[dialer] and dialer.alive:
            dialer.table.ready(number, self.now)
            dialer.act()

    def _failed(self, dialer: Host, number: int, reason: str, refused: bool) -> None:
        if dialer.alive:
            dialer.table.closed(number, reason, self.now, refused=refused)
            dialer.act()

    def write(self, pipe: Pipe, host: Host, chunks: list[Bytes]) -> None:
        data, there = b"".join(chunks), pipe.other(host)
        while data:
            size = self.random.choice([*self.pieces, len(data)])
            piece, data = data[:size], data[size:]
            # bound now
            self._in_order(pipe, there, lambda piece=piece: self._arrived(pipe, there, piece))  # type: ignore[misc]

    def _in_order(self, pipe: Pipe, to: Host, do: Callable[[], None]) -> None:
        when = max(pipe.clear_at[to], self.now + self.random.uniform(*self.delay))
        pipe.clear_at[to] = when
        pipe.coming[to].append(do)
        self.at(when, lambda: self._next(pipe, to))

    def _next(self, pipe: Pipe, to: Host) -> None:
        """What comes next, arrives; or later, if nothing passes: the kernels try again."""
        if not self.passes(*pipe.ends):
            self.at(self.now + 0.2, lambda: self._next(pipe, to))
        else:
            pipe.coming[to].popleft()()

    def _arrived(self, pipe: Pipe, host: Host, data: bytes) -> None:
        if not pipe.open[host] or not host.alive:
            return
        number, chunk = pipe.numbers[host], memoryview(bytearray(data))
        while (space := host.table.space(number)) is not None and chunk:
            count = min(len(space), len(chunk))
            space[:count] = chunk[:count]
            host.in_place += count
            host.table.filled(number, count, self.now)
            chunk = chunk[count:]
        if chunk:
            host.table.data(number, chunk, self.now)
        host.act()

    def close(self, pipe: Pipe, host: Host) -> None:
        pipe.open[host] = False
        there = pipe.other(host)
        self._in_order(pipe, there, lambda: self._ended(pipe, there, "it closed the connection"))

    def _ended(self, pipe: Pipe, host: Host, reason: str) -> None:
        if host.alive and pipe.numbers.get(host) in host.pipes:
            pipe.open[host] = False
            del host.pipes[pipe.numbers[host]]
            host.table.closed(pipe.numbers[host], reason, self.now)
            host.act()


class Dialer:
    """A table whose peer is played by hand, up to a given state."""

    def __init__(self, *steps: str) -> None:
        self.table = LinkTable("1", lambda: "a", LIMITS, lambda: "u")
        self.table.send("b", self.table.pack(frame_of("x")), 0.0)
        self.now = 0.0
        self.lost: list[str] = []
        self.stream = 0
        self.said: list[bytes] = []
        self.let_go: list[int] = []  # streams
        for step in steps:
            getattr(self, step)()

    def act(self, now: float | None = None) -> Dialer:
        self.now = self.now if now is None else now
        self.table.tick(self.now)
        for instruction in self.table.take():
            match instruction:
                case Dial(number, _):
                    self.stream = number
                case Write(_, chunks):
                    self.said.append(b"".join(chunks))
                case Cut(number):
                    self.let_go.append(number)
                case Lost(_, reason):
                    self.lost.append(reason)
        return self

    def ready(self) -> None:
        self.act(self.now + 0.1)
        self.table.ready(self.stream, self.now)

    def greet(self) -> None:
        self.say(greeting(Hello("2", "b")))

    def join(self) -> None:
        self.say(control(JOINED, 0, Join("u", False, 0, 1)))

    def cut(self) -> None:
        self.table.closed(self.stream, "cut in a test", self.now)

    def attach(self) -> None:
        """Until just before the end of the time for the first dial."""
        self.act(LIMITS.attach - 0.7)

    def wait(self) -> None:
        """Until just before the end of the time without contact."""
        self.act(self.now + LIMITS.reconnect - 0.7)

    def say(self, data: bytes) -> None:
        self.table.data(self.stream, memoryview(data), self.now)
        self.act()

    def hears(self) -> list[tuple[int, int]]:
        """Kind of each record that was written since, and the number that it acknowledges."""
        records, self.said = [self.said[at][24:33] for at in range(len(self.said))], []
        return [(record[8], int.from_bytes(record[:8], "little")) for record in records]

    @property
    def state(self) -> str:
        link = self.table.get("b")
        return "none" if link is None else link.state
