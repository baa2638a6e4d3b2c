"""How much a long test does: all of it at a desk, less where the variable CI is set, as `.ci/run`
does.

What mostly proves other programs again, such as Slurm, is done in thirds, one in each run: where the
variable CI_THIRD has its number, from 0 to 2.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

IN_CI = "CI" in os.environ
THIRD = os.environ.get("CI_THIRD")


def shortened(whole: T, in_ci: T) -> T:
    """`whole`, or in CI `in_ci`, which is less, and enough for the test to fail when it should."""
    return in_ci if IN_CI else whole


def third_of(cases: Iterable[T]) -> list[T]:
    """Those of this run; all of them where they are not done in thirds."""
    return [*cases] if THIRD is None else [*cases][int(THIRD) :: 3]
