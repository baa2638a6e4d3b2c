"""Byte streams between simulated hosts, as TCP gives them.

They are in order, whole or not at all, with delays and cuts.

A host that lost its power says nothing more, nor does one behind a cut: data sent there waits, as
TCP would send it again, and arrives after the cut has healed if the stream is still open on both
sides.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .clock import Clock

if TYPE_CHECKING:
    from .worker import SimulatedHost

_RESENT = 0.2  # seconds after which TCP sends again what got lost


class SimulatedStream:
    """One end of a connection.

    Attributes:
        other: The other end; None before it is accepted, and when it was closed.
        number: By which the links of `host` know it.
    """

    __slots__ = ("arrives", "host", "number", "open", "other", "waiting")

    def __init__(self, host: SimulatedHost, number: int) -> None:
        self.host = host
        self.number = number
        self.open = True
        self.other: SimulatedStream | None = None
        self.arrives = 0.0  # when the latest data arrives; nothing overtakes it
        self.waiting: list[bytes | None] = []  # for a cut to heal; None is the end of the stream


class Partition:
    """A cut between two groups of hosts, until `heal`."""

    def __init__(self, network: Network, one: Iterable[str], other: Iterable[str]) -> None:
        self._network = network
        self._one, self._other = frozenset(one), frozenset(other)

    def between(self, a: str, b: str) -> bool:
        """Return whether two hosts are on different sides.

        Args:
            a: Name of a host.
            b: Name of another host.
        """
        return (a in self._one and b in self._other) or (a in self._other and b in self._one)

    def heal(self) -> None:
        """The hosts reach each other again.

        Data sent meanwhile arrives, if its stream is still open.
        """
        self._network.healed(self)


class Network:
    """A network of simulated hosts.

    Args:
        clock: Of the simulation.
        chance: Decides delays and losses.
        delay: Shortest and longest time that bytes take from host to host, in seconds.
        loss: Probability that bytes must be sent again, which delays them and all behind them.
    """

    def __init__(
        self, clock: Clock, chance: random.Random, delay: tuple[float, float], loss: float
    ) -> None:
        self._clock = clock
        self._random = chance.random
        self._least, self._spread = delay[0], delay[1] - delay[0]
        self._loss = loss
        self._cuts: list[Partition] = []
        self._held: dict[SimulatedStream, None] = {}
        self.hosts: dict[str, SimulatedHost] = {}
        self.bytes = 0

    def partition(self, one: Iterable[str], other: Iterable[str]) -> Partition:
        cut = Partition(self, one, other)
        self._cuts.append(cut)
        return cut

    def healed(self, cut: Partition) -> None:
        self._cuts.remove(cut)
        held, self._held = self._held, {}
        for stream in held:
            waiting, stream.waiting = stream.waiting, []
            for data in waiting:
                self._transmit(stream, data)

    def dial(self, caller: SimulatedHost, number: int, name: str) -> SimulatedStream:
        """Connect to the host of that name.

        `caller` is told when that is done, or that no host listens.
        """
        near = SimulatedStream(caller, number)

        def reach() -> None:
            host = self.hosts[name]
            if self._is_cut(caller.name, name) or not near.open or not host.powered:
                return  # what bounds the wait is the link's own time
            if not host.alive:
                self._clock.after(
                    self._delay(),
                    lambda: caller.stream_closed(near, "nothing listens there", refused=True),
                )
                return
            self._clock.after(self._least, lambda: caller.stream_answered(near))
            host.when_awake(lambda: host.greet(near, lambda: host.when_awake(lambda: let_in(host))))

        def let_in(host: SimulatedHost) -> None:
            if not (host.alive and near.open):
                return
            far = SimulatedStream(host, host.accept())
            near.other, far.other = far, near
            host.streams[far.number] = far
            far.arrives = self._clock.now + self._delay()  # of the first that it says
            self._clock.at(far.arrives, lambda: caller.stream_ready(near))
            host.carry_out()

        self._clock.after(self._delay(), reach)
        return near

    def send(self, stream: SimulatedStream, data: bytes) -> None:
        self.bytes += len(data)
        self._transmit(stream, data)

    def close(self, stream: SimulatedStream) -> None:
        """The other side is told when it has all that was sent before."""
        if stream.open:
            stream.open = False
            self._transmit(stream, None)

    def _transmit(self, stream: SimulatedStream, data: bytes | None) -> None:
        far = stream.other
        if far is None:
            return
        if self._cuts and self._is_cut(stream.host.name, far.host.name):
            stream.waiting.append(data)
            self._held[stream] = None
            return
        delay = self._delay()
        if self._loss and self._random() < self._loss:
            delay += _RESENT
        start = self._clock.now + stream.host.spent
        stream.arrives = max(stream.arrives, start + delay)
        if data is None:
            self._clock.at(
                stream.arrives, lambda: far.host.stream_closed(far, "the connection was closed")
            )
        else:
            self._clock.at(stream.arrives, lambda: far.host.stream_data(far, data))

    def _delay(self) -> float:
        return self._least + self._random() * self._spread

    def _is_cut(self, a: str, b: str) -> bool:
        return any(cut.between(a, b) for cut in self._cuts)
