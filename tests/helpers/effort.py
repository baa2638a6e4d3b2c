"""How much a long test does: all of it at a desk, less where the variable CI is set, as `.ci/run`
does.

What mostly proves other programs again, such as Slurm, is done in parts, one in each run: where the
variable CI_TURN counts runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

IN_CI = "CI" in os.environ
TURN = os.environ.get("CI_TURN")


def shortened(whole: T, in_ci: T) -> T:
    """`whole`, or in CI `in_ci`, which is less, and enough for the test to fail when it should."""
    return in_ci if IN_CI else whole


def part_of(cases: Iterable[T], parts: int = 3) -> list[T]:
    """Those of this run; all of them where they are not done in parts."""
    return [*cases] if TURN is None else [*cases][int(TURN) % parts :: parts]
