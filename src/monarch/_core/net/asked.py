"""Which requests went out over a connection."""

from __future__ import annotations

from collections.abc import Collection

_FEW = 1024


class Asked:
    """Numbers of the requests that were sent, apart from those that were answered long ago.

    When the process at the other end is gone, these have failed, and no others: a request that
    another thread is about to send goes to its next incarnation.

    Args:
        open: Numbers of those that wait for an answer; a live view.
    """

    __slots__ = ("_most", "_numbers", "_open")

    def __init__(self, open: Collection[int]) -> None:  # noqa: A002
        self._open = open
        self._numbers: list[int] = []
        self._most = _FEW

    def note(self, number: int) -> None:
        """Called by one thread at a time, as soon as the request is sent."""
        self._numbers.append(number)
        if len(self._numbers) > self._most:
            self._numbers = [number for number in self._numbers if number in self._open]
            # doubled: a sweep costs a constant per request, however many are open
            self._most = 2 * len(self._numbers) + _FEW

    def numbers(self) -> list[int]:
        return self._numbers
