"""First in, first out from process to host over several paths: number, and await gaps.

The gateway of the sender's host numbers what a process sends to a host, whether it goes there
directly or down a tree; the gateway of the receiver's host hands on number n after n - 1. Nothing
waits for ever: links lose nothing, a cast that was lost with a host that passed it on is sent again
(`gateway`), and a message lost for good takes its host with it, which starts a new *epoch*: numbers
begin again, and messages of an earlier epoch are dropped.

A host may be known by several names; a sender that uses two of them counts twice, and so does the
receiver: each is a `Lane`.

A number is ``epoch << 40 | n`` with n from 1; 0 stands for "no order".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..wire.address import ProcAddress

_EPOCH = 40


class Lane(NamedTuple):
    """Messages of one process to one host, by the name that it has for that."""

    source: ProcAddress
    host: str


class Numbering:
    """The sending side.

    Args:
        epoch: The first one. It must grow from one life of a host's name to the next: a time, for
            example.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch << _EPOCH
        self._last: dict[str, dict[ProcAddress, int]] = {}

    def next(self, source: ProcAddress, host: str) -> int:
        """The number of the next message from a process to a host."""
        numbers = self._last.get(host)
        if numbers is None:
            numbers = self._last[host] = {}
        number = numbers[source] = numbers.get(source, self._epoch) + 1
        return number

    def lost(self, host: str) -> None:
        """Forget a lost host: later messages to it have nothing to do with earlier ones."""
        if self._last.pop(host, None) is not None:
            # the receiver may have forgotten this host, or not: a number of a new epoch begins anew
            # in both cases
            self._epoch += 1 << _EPOCH

    def forget(self, source: ProcAddress) -> None:
        """A process has ended."""
        for numbers in self._last.values():
            numbers.pop(source, None)


class Reordering:
    """The receiving side. Messages are objects of any type.

    Args:
        dropped: Called with each message that waited for one before it, and will not be handed on
            any more.
    """

    def __init__(self, dropped: Callable[[Any], None]) -> None:
        self._dropped = dropped
        self._last: dict[Lane, int] = {}
        self._early: dict[Lane, dict[int, Any]] = {}

    def arrived(self, lane: Lane, number: int, message: Any) -> list[Any]:
        """The messages to hand on now, in order: none if this one is early, or a repetition."""
        if self.has_passed(lane, number):
            return []
        last = self._last.get(lane, 0)
        if number >> _EPOCH != last >> _EPOCH:
            # messages of the epoch before that still wait will never be complete
            last = number >> _EPOCH << _EPOCH
            self._drop_early(lane)
        if number != last + 1:
            self._last[lane] = last
            self._early.setdefault(lane, {})[number] = message
            return []
        ready = [message]
        early = self._early.get(lane)
        if early is not None:
            while number + 1 in early:
                number += 1
                ready.append(early.pop(number))
            if not early:
                del self._early[lane]
        self._last[lane] = number
        return ready

    def has_passed(self, lane: Lane, number: int) -> bool:
        """Return whether the message of that number was handed on, or is of an earlier epoch."""
        return number <= self._last.get(lane, 0)

    def forget(self, lane: Lane) -> None:
        """Forget a process that has ended."""
        self._last.pop(lane, None)
        self._drop_early(lane)

    def _drop_early(self, lane: Lane) -> None:
        for message in self._early.pop(lane, {}).values():
            self._dropped(message)

    def leave(self, host: str) -> dict[Lane, int]:
        """Drop the waiting messages of the processes of a host that is given up.

        Returns where each of them stood.

        What they had sent before may still come by another way, and must not be handed on twice:
        see `forget_quiet`.
        """
        stood = {lane: last for lane, last in self._last.items() if lane.source.host == host}
        for lane in stood:
            self._drop_early(lane)
        return stood

    def forget_quiet(self, stood: dict[Lane, int]) -> None:
        """Forget those that still stand where they stood."""
        for lane, last in stood.items():
            if self._last.get(lane) == last:
                self.forget(lane)

    def waits_for(self, lane: Lane) -> int:
        """The number that later messages of a lane wait for; 0 if none do."""
        return self._last[lane] + 1 if lane in self._early else 0

    @property
    def held(self) -> int:
        """Messages that wait for one before them."""
        return sum(map(len, self._early.values()))
