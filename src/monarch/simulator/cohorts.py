"""The time of each rank.

Pure: times go in and come out, in seconds since the simulation began.

Ranks that have done the same so far are a *cohort*, and are computed once: a mesh of a thousand
ranks that all do the same costs what one rank does. A cohort splits when only some of its ranks do
something, or meet others than the rest do. No approximation is made: a statement on a cohort holds
for each of its ranks.

Instructions come in the order in which they were issued, and nothing waits for instructions issued
later. So the time of each is a maximum over times that are known already, and no queue of events is
needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from .machine import Machine


class Span(NamedTuple):
    """A period, in seconds."""

    start: float
    end: float


class Clock:
    """The time of a stream.

    Attributes:
        host: When its thread is free.
        device: When its device has done what it was told.
    """

    __slots__ = ("device", "host")

    def __init__(self, host: float = 0.0, device: float = 0.0) -> None:
        self.host = host
        self.device = device

    @property
    def end(self) -> float:
        return max(self.host, self.device)


class Busy:
    """The periods in which a device computes.

    Streams share it: one piece of work at a time, each in the first gap that is long enough.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, starts: Iterable[float] = (), ends: Iterable[float] = ()) -> None:
        self._starts = list(starts)
        self._ends = list(ends)

    def reserve(self, ready: float, seconds: float) -> float:
        """The start of work that could start at `ready`."""
        index = bisect_right(self._ends, ready)
        start = ready
        while index < len(self._starts) and self._starts[index] < start + seconds:
            start = max(start, self._ends[index])
            index += 1
        if index and self._ends[index - 1] == start:
            self._ends[index - 1] = start + seconds
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, start + seconds)
        return start

    def forget(self, before: float) -> None:
        """Forget the past: nothing will be reserved before that time."""
        index = bisect_right(self._ends, before)
        del self._starts[:index], self._ends[:index]

    def copy(self) -> Busy:
        return Busy(self._starts, self._ends)


class Cohort:
    """Ranks that have done the same so far.

    Attributes:
        ranks: In order.
        clocks: Of each stream.
        compute: When the device computes.
        network: When it has sent and received all that it was told.
        handed: What one stream has for another, by ticket: when it is ready.
        allocated: Bytes.
        peak: The most bytes since `start_peak`.
    """

    __slots__ = ("allocated", "clocks", "compute", "handed", "members", "network", "peak", "ranks")

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self.members = frozenset(ranks)
        self.clocks: dict[int, Clock] = {}
        self.compute = Busy()
        self.network = 0.0
        self.handed: dict[int, Clock] = {}
        self.allocated = 0
        self.peak = 0

    def like(self, ranks: Sequence[int]) -> Cohort:
        """Return a cohort of these ranks with the clocks of this one."""
        part = Cohort(ranks)
        part.clocks = {
            stream: Clock(clock.host, clock.device) for stream, clock in self.clocks.items()
        }
        part.compute = self.compute.copy()
        part.network = self.network
        part.handed = dict(self.handed)
        part.allocated, part.peak = self.allocated, self.peak
        return part

    def clock(self, stream: int) -> Clock:
        found = self.clocks.get(stream)
        return found if found is not None else self.clocks.setdefault(stream, Clock())

    @property
    def end(self) -> float:
        """The time at which all that it was told is done."""
        return max((clock.end for clock in self.clocks.values()), default=0.0)

    def compute_on(self, stream: int, arrival: float, seconds: float, machine: Machine) -> Span:
        """Work through one instruction that reached the stream at `arrival`.

        The result is when the device does it.
        """
        clock = self.clock(stream)
        begun = max(clock.host, arrival)
        clock.host = begun + machine.overhead
        if not seconds:
            return Span(begun, clock.host)
        start = self.compute.reserve(max(clock.host, clock.device), seconds)
        clock.device = start + seconds
        if not machine.asynchronous:
            clock.host = clock.device
            return Span(min(begun, start), clock.device)
        return Span(start, clock.device)

    def ready(self, stream: int, arrival: float, machine: Machine) -> Clock:
        """The time at which the stream could begin to communicate."""
        clock = self.clock(stream)
        host = max(clock.host, arrival) + machine.overhead
        return Clock(host, max(host, clock.device, self.network))

    def communicate(self, stream: int, host: float, end: float) -> None:
        """The stream has communicated.

        Args:
            stream: Number of the stream.
            host: When its thread is free.
            end: When the data is there.
        """
        clock = self.clock(stream)
        clock.host, clock.device = host, max(end, clock.device)
        self.network = max(self.network, end)

    def hand_over(self, stream: int, arrival: float, ticket: int) -> None:
        """Let another stream use what this one has, from here on."""
        clock = self.clock(stream)
        clock.host = max(clock.host, arrival)
        self.handed[ticket] = Clock(clock.host, clock.device)

    def take_over(self, stream: int, arrival: float, ticket: int) -> Span:
        """Wait for what another stream has handed over; how long the stream stands still."""
        clock, handed = self.clock(stream), self.handed.pop(ticket)
        clock.host = max(clock.host, arrival)
        before = clock.end
        clock.host = max(clock.host, handed.host)
        clock.device = max(clock.device, handed.device)
        return Span(before, clock.end)

    def allocate(self, size: int) -> None:
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def start_peak(self) -> None:
        self.peak = self.allocated


class Cohorts:
    """The ranks of a mesh, in cohorts."""

    def __init__(self, ranks: int) -> None:
        self.all = [Cohort(range(ranks))]
        self.version = 0
        self._found: dict[tuple[int, ...], list[Cohort]] = {}

    def of(self, ranks: tuple[int, ...], members: frozenset[int]) -> list[Cohort]:
        """The cohorts that consist of these ranks; splits where one has more."""
        found = self._found.get(ranks)
        if found is None:
            self._split(dict.fromkeys(ranks), members)
            found = self._found[ranks] = [
                cohort for cohort in self.all if cohort.members <= members
            ]
        return found

    def regroup(self, keys: Mapping[int, Hashable]) -> list[tuple[Cohort, Hashable]]:
        """Split so that all ranks of a cohort have the same key.

        It returns the cohorts of these ranks, each with its key.
        """
        self._split(keys, frozenset(keys))
        return [(cohort, keys[cohort.ranks[0]]) for cohort in self.all if cohort.ranks[0] in keys]

    def _split(self, keys: Mapping[int, Hashable], members: frozenset[int]) -> None:
        all_: list[Cohort] = []
        for cohort in self.all:
            if not cohort.members & members:
                all_.append(cohort)
                continue
            parts: dict[Hashable, list[int]] = {}
            for rank in cohort.ranks:
                parts.setdefault(
                    (True, keys[rank]) if rank in members else (False, None), []
                ).append(rank)
            all_ += (
                [cohort] if len(parts) == 1 else [cohort.like(ranks) for ranks in parts.values()]
            )
        if len(all_) > len(self.all):
            self.version += 1
            self._found.clear()
        self.all = all_
