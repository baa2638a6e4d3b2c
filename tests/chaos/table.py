"""The operations that there are. Modules enter theirs with the decorator when they are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chaos.episode import Episode

Step = Callable[[Episode], None]


class Operation(NamedTuple):
    weight: float
    run: Step
    """Draws what it needs, and does it; raises `NotNow` where it has nothing to work on."""


TABLE: dict[str, Operation] = {}


def operation(weight: float) -> Callable[[Step], Step]:
    def enter(function: Step) -> Step:
        TABLE[function.__name__] = Operation(weight, function)
        return function

    return enter
