"""How much a long test does: all of it at a desk, when it is named or with `--all`; less in a plain
run, and where the variable CI is set, as `.ci/run` does.

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
short = IN_CI
"""Whether long tests do less: `gate/choice.py` sees to that in a plain run, before tests are
imported.
"""


def shortened(whole: T, less: T) -> T:
    """`whole`, or `less` in CI and in a plain run, which is enough for the test to fail when it
    should.
    """
    return less if short else whole


def part_of(cases: Iterable[T], parts: int = 3) -> list[T]:
    """Those of this run; all of them where they are not done in parts."""
    return [*cases] if TURN is None else [*cases][int(TURN) % parts :: parts]
