"""First in, first out from each process to each host, though messages take different paths: number, and wait for the gap.

The gateway of the sender's host numbers what a process sends to a host, whether it goes there directly or down a tree; the
gateway of the receiver's host hands on number n after n - 1. Nothing waits for ever: links lose nothing, a cast that was
lost with a host that passed it on is sent again (`gateway`), and what is lost for good takes its host with it, which
starts a new *epoch*: numbers begin again, and what belongs to an epoch before is dropped.

A number is ``epoch << 40 | n`` with n from 1; 0 stands for "no order".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..wire.address import ProcAddress

_EPOCH = 40


class Numbering:
    """The sending side.

    Args:
        epoch: The first one. It must grow from one life of a host's name to the next: a time, for example.
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
        """What is sent to that host from now on has nothing to do with what was sent before."""
        if self._last.pop(host, None) is not None:
            self._epoch += 1 << _EPOCH

    def forget(self, source: ProcAddress) -> None:
        """A process has ended."""
        for numbers in self._last.values():
            numbers.pop(source, None)


class Reordering:
    """The receiving side. Messages are whatever the caller hands in.

    Args:
        dropped: Called with each message that waited for one before it, and will not be handed on any more.
    """

    def __init__(self, dropped: Callable[[Any], None]) -> None:
        self._dropped = dropped
        self._last: dict[ProcAddress, int] = {}
        self._early: dict[ProcAddress, dict[int, Any]] = {}

    def arrived(self, source: ProcAddress, number: int, message: Any) -> list[Any]:
        """The messages that are to be handed on now, in order: none if it is early, or has been here before."""
        if self.has_passed(source, number):
            return []
        last = self._last.get(source, 0)
        if number >> _EPOCH != last >> _EPOCH:
            last = number >> _EPOCH << _EPOCH
            self._drop_early(source)
        if number != last + 1:
            self._last[source] = last
            self._early.setdefault(source, {})[number] = message
            return []
        ready = [message]
        early = self._early.get(source)
        if early is not None:
            while number + 1 in early:
                number += 1
                ready.append(early.pop(number))
            if not early:
                del self._early[source]
        self._last[source] = number
        return ready

    def has_passed(self, source: ProcAddress, number: int) -> bool:
        """Whether the message of that number was handed on, or is of an epoch before."""
        return number <= self._last.get(source, 0)

    def forget(self, source: ProcAddress) -> None:
        """A process has ended."""
        self._last.pop(source, None)
        self._drop_early(source)

    def _drop_early(self, source: ProcAddress) -> None:
        for message in self._early.pop(source, {}).values():
            self._dropped(message)

    def leave(self, host: str) -> dict[ProcAddress, int]:
        """A host is given up: what is held of its processes is dropped. Returns where each of them stood.

        What they had sent before may still come by another way, and must not be handed on twice: see `forget_quiet`.
        """
        stood = {source: last for source, last in self._last.items() if source.host == host}
        for source in stood:
            self._drop_early(source)
        return stood

    def forget_quiet(self, stood: dict[ProcAddress, int]) -> None:
        """Forget those that still stand where they stood."""
        for source, last in stood.items():
            if self._last.get(source) == last:
                self.forget(source)

    def waits_for(self, source: ProcAddress) -> int:
        """The number that later messages of a process wait for; 0 if none do."""
        return self._last[source] + 1 if source in self._early else 0

    @property
    def held(self) -> int:
        """Messages that wait for one before them."""
        return sum(map(len, self._early.values()))
