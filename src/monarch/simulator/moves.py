"""Communication between ranks in a simulation: who meets whom, from when to when."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from . import collectives
from .cohorts import Clock, Cohort, Cohorts, Span
from .collectives import Layout
from .machine import Machine

# bytes: beside each reduction its members tell each other whether what they bring has failed
_FLAG = 8

_SECONDS: dict[str, Callable[[float, Layout, Machine], float]] = {
    "all-reduce": collectives.all_reduce,
    "all-gather": collectives.all_gather,
    "all-to-all": collectives.all_to_all,
    "reduce-scatter": collectives.all_to_all,  # the engine moves the parts, then adds
}


class _Meeting(NamedTuple):
    """A meeting of one cohort.

    Attributes:
        cohort: It.
        peers: The cohorts in its groups, itself as well.
        layout: Of its groups.
    """

    cohort: Cohort
    peers: tuple[Cohort, ...]
    layout: Layout


class _Pair(NamedTuple):
    """One transfer, seen from one of its ends.

    Attributes:
        peer: The cohort of the other end, by its position among all.
        same_host: Whether both are on one host.
        receivers: How many the sender sends to.
    """

    peer: int
    same_host: bool
    receivers: int


class Moves:
    """The data moves between simulated ranks.

    Attributes:
        groups: Those with a number: the members of each.
        routes: Those with a number: from each rank to those that it sends to.
    """

    def __init__(self, cohorts: Cohorts, machine: Machine, per_host: int) -> None:
        self.groups: dict[int, list[tuple[int, ...]]] = {}
        self.routes: dict[int, dict[int, tuple[int, ...]]] = {}
        self._cohorts = cohorts
        self._machine = machine
        self._per_host = per_host
        self._meetings: dict[int, tuple[int, list[_Meeting]]] = {}
        self._pairs: dict[int, tuple[int, list[tuple[Cohort, frozenset[_Pair]]]]] = {}

    def reduce(
        self, number: int, stream: int, arrival: float, size: float, collective: str, local: float
    ) -> list[tuple[Cohort, Span]]:
        """Reduce in each group with a number.

        Args:
            number: Number of the groups.
            stream: Number of the stream.
            arrival: When the instruction reaches the ranks, in seconds.
            size: Bytes at each member.
            collective: Name of the collective.
            local: Seconds that each member copies and adds.
        """
        meetings = self._meetings_of(number)
        ready = self._ready({meeting.cohort for meeting in meetings}, stream, arrival)
        spans = []
        for cohort, peers, layout in meetings:
            start = max(ready[peer].device for peer in peers)
            end = start + local + _SECONDS[collective](size, layout, self._machine)
            host = end
            if self._machine.asynchronous:
                host = max(ready[peer].host for peer in peers) + collectives.all_reduce(
                    _FLAG, layout, self._machine
                )
            cohort.communicate(stream, host, end)
            spans.append((cohort, Span(start, end)))
        return spans

    def transfer(
        self, number: int, stream: int, arrival: float, size: float, copy: float
    ) -> list[tuple[Cohort, Span]]:
        """Send along each route with a number.

        Args:
            number: Number of the routes.
            stream: Number of the stream.
            arrival: When the instruction reaches the ranks, in seconds.
            size: Bytes that each sender has.
            copy: Seconds that a rank takes to copy what it sends to itself.
        """
        parts = self._pairs_of(number)
        everybody = {cohort for cohort, _ in parts} | {
            self._cohorts.all[p.peer] for _, pairs in parts for p in pairs
        }
        ready = self._ready(everybody, stream, arrival)
        spans = []
        for cohort, pairs in parts:
            start, end = ready[cohort].device, ready[cohort].device + (0.0 if pairs else copy)
            for peer, same_host, receivers in pairs:
                seconds = collectives.transfer(size, receivers, same_host, self._machine)
                end = max(end, max(start, ready[self._cohorts.all[peer]].device) + seconds)
            cohort.communicate(
                stream, ready[cohort].host if self._machine.asynchronous else end, end
            )
            spans.append((cohort, Span(start, end)))
        return spans

    def send(
        self, number: int, stream: int, arrival: float, size: float, ticket: int
    ) -> list[tuple[Cohort, Span]]:
        """The senders' part of a transfer to another stream.

        The receivers hold no sender up: the data is buffered.

        Args:
            number: Number of the routes.
            stream: Number of the stream.
            arrival: When the instruction reaches the ranks, in seconds.
            size: Bytes that each sender has.
            ticket: What the receivers find it by.
        """
        spans = []
        for cohort, pairs in self._parted(number, senders=True):
            ready = cohort.ready(stream, arrival, self._machine)
            seconds = [
                collectives.transfer(size, pair.receivers, pair.same_host, self._machine)
                for pair in pairs
            ]
            end = ready.device + max(seconds, default=0.0)
            cohort.communicate(stream, ready.host if self._machine.asynchronous else end, end)
            cohort.handed[ticket] = Clock(ready.host, end)
            spans.append((cohort, Span(ready.device, end)))
        return spans

    def receive(
        self, number: int, stream: int, arrival: float, ticket: int
    ) -> list[tuple[Cohort, Span]]:
        """The receivers' part."""
        spans = []
        for cohort, pairs in self._parted(number, senders=False):
            ready = cohort.ready(stream, arrival, self._machine)
            peers = [self._cohorts.all[pair.peer] for pair in pairs] or [cohort]
            end = max(ready.device, *(peer.handed[ticket].device for peer in peers))
            cohort.communicate(stream, ready.host if self._machine.asynchronous else end, end)
            spans.append((cohort, Span(ready.device, end)))
        for cohort in self._cohorts.all:
            cohort.handed.pop(ticket, None)
        return spans

    def _ready(self, cohorts: set[Cohort], stream: int, arrival: float) -> dict[Cohort, Clock]:
        return {cohort: cohort.ready(stream, arrival, self._machine) for cohort in cohorts}

    # who meets whom

    def _meetings_of(self, number: int) -> list[_Meeting]:
        found = self._meetings.get(number)
        if found is not None and found[0] == self._cohorts.version:
            return found[1]
        groups = self.groups[number]
        layouts = [collectives.layout_of(members, self._per_host) for members in groups]

        def keys(at: Mapping[int, int]) -> dict[int, Hashable]:
            found: dict[int, Hashable] = {}
            for members, layout in zip(groups, layouts, strict=True):
                key = frozenset(at[rank] for rank in members), layout
                found.update(dict.fromkeys(members, key))
            return found

        meetings = [
            _Meeting(cohort, tuple(self._cohorts.all[peer] for peer in sorted(key[0])), key[1])
            for cohort, key in self._refined(keys)
        ]
        self._meetings[number] = self._cohorts.version, meetings
        return meetings

    def _pairs_of(self, number: int) -> list[tuple[Cohort, frozenset[_Pair]]]:
        found = self._pairs.get(number)
        if found is not None and found[0] == self._cohorts.version:
            return found[1]

        parts = self._refined(lambda at: self._keys_of_pairs(number, at, True, True))
        self._pairs[number] = self._cohorts.version, parts
        return parts

    def _parted(self, number: int, senders: bool) -> list[tuple[Cohort, frozenset[_Pair]]]:
        """One side of the routes with a number."""
        return self._refined(lambda at: self._keys_of_pairs(number, at, senders, not senders))

    def _keys_of_pairs(
        self, number: int, at: Mapping[int, int], senders: bool, receivers: bool
    ) -> Mapping[int, frozenset[_Pair]]:
        """The transfers of each rank on either side.

        What stays on a rank is no transfer.
        """
        pairs: dict[int, set[_Pair]] = {}
        for sender, all_receivers in self.routes[number].items():
            others = [receiver for receiver in all_receivers if receiver != sender]
            if senders and all_receivers:
                pairs.setdefault(sender, set())
            for receiver in all_receivers if receivers else ():
                pairs.setdefault(receiver, set())
            for receiver in others:
                same_host = sender // self._per_host == receiver // self._per_host
                if senders:
                    pairs[sender].add(_Pair(at[receiver], same_host, len(others)))
                if receivers:
                    pairs[receiver].add(_Pair(at[sender], same_host, len(others)))
        return {rank: frozenset(each) for rank, each in pairs.items()}

    def _refined(
        self, keys: Callable[[Mapping[int, int]], Mapping[int, Hashable]]
    ) -> list[tuple[Cohort, Any]]:
        """Split cohorts until all ranks of each have the same key.

        The key may itself name cohorts, by position.
        """
        while True:
            version = self._cohorts.version
            at = {
                rank: index
                for index, cohort in enumerate(self._cohorts.all)
                for rank in cohort.ranks
            }
            parts = self._cohorts.regroup(keys(at))
            if self._cohorts.version == version:
                return parts


def collective_of(kind: str, scatter: bool) -> str:
    """Return the common name of a reduction."""
    if scatter:
        return "all-to-all" if kind == "stack" else "reduce-scatter"
    return "all-gather" if kind == "stack" else "all-reduce"
