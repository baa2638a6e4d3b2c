"""Times, and many whole numbers, for people; and what one part says and another reads."""

from __future__ import annotations

import sys
from collections.abc import Iterable

NO_REPLICA = "waits for a replica: none is ready"
"""Ends the description of a call of a service that has none, by which the verdict on a program
knows it.
"""


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``2 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def ranges(numbers: Iterable[int], most: int = sys.maxsize) -> str:
    """``0-3,7``; what comes after `most` ranges is counted only."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    text = ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in found[:most]
    )
    left = sum(last - first + 1 for first, last in found[most:])
    return f"{text},... ({left} more)" if left else text
