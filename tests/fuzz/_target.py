"""What a target is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Target(NamedTuple):
    """Attributes:
    name: For people.
    check: Takes any bytes; raises if they did what none may do.
    samples: Bytes that are valid, for a start.
    weight: How many times as long one input takes, about.
    """

    name: str
    check: Callable[[bytes], None]
    samples: Sequence[bytes]
    weight: int = 1
