"""Each of these rows of `benchmarks/end_to_end` is run as it is, with little to do."""

from __future__ import annotations

import importlib
import math

import pytest
from benchmarks.end_to_end import contenders
from benchmarks.end_to_end.contenders import OURS, Row

LITTLE = {
    "files": {"files": 30, "processes": 2},
    "serve": {"requests": 200, "clients": 8, "replicas": 2},
    "loader": {"ranks": 2, "images": 128},
    "checkpoint": {"ranks": 2, "megabytes": 70},
}


@pytest.mark.parametrize("name", LITTLE)
def test_a_row_tells_each_of_its_numbers(name: str) -> None:
    row: Row = importlib.import_module(f"benchmarks.end_to_end.{name}").ROW
    for module in row.contenders[OURS].needs:
        pytest.importorskip(module)
    others = ["torchrun"] if "torchrun" in row.contenders else []
    assert LITTLE[name].keys() == row.settings.keys()
    for contender in [OURS, *others]:
        found = contenders.turn(row, contender, LITTLE[name])
        assert found.keys() == row.quantities.keys()
        assert all(0 < number < math.inf for number in found.values())
