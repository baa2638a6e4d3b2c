"""A random order of files, and of the tests of each, by a seed: `pytest --shuffle 7`.

A file's tests stay together, as `--dist loadfile` has it: they may share a host that is started once.
"""

from __future__ import annotations

import random
from itertools import groupby

import pytest


def add_options(parser: pytest.Parser) -> None:
    parser.getgroup("choice of tests").addoption(
        "--shuffle",
        metavar="SEED",
        help="run files, and the tests of each, in a random order that this seed gives",
    )


def shuffle(seed: str, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: str(item.path))
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    order = random.Random(seed)
    order.shuffle(files)
    for tests in files:
        order.shuffle(tests)
    items[:] = [item for tests in files for item in tests]
