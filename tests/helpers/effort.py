"""How much a long test does: all of it at a desk, less where the variable CI is set, as `.ci/run`
does.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

IN_CI = "CI" in os.environ


def shortened(whole: T, in_ci: T) -> T:
    """`whole`, or in CI `in_ci`, which is less, and enough for the test to fail when it should."""
    return in_ci if IN_CI else whole
