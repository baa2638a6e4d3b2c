"""The formula of docs/scale.md, and the simulation of the same: two ways to one answer."""

from __future__ import annotations

import pytest
from benchmarks.scale import predict, simulate

from monarch.testing import Costs

COSTS = Costs(arrival=17e-6, departure=8e-6, proc=4e-6, reply=4e-6, entry=1.3e-6, answer=4e-6)


@pytest.mark.parametrize("fanout", [4, 16, 64])
@pytest.mark.parametrize("procs", [200, 2000])
def test_the_formula_and_the_simulation_agree_within_a_factor_of_two(
    procs: int, fanout: int
) -> None:
    for paper, run in zip(
        predict(COSTS, procs, fanout), simulate(COSTS, procs, fanout), strict=True
    ):
        assert run / 2 < paper < run * 2
