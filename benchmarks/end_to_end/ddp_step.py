"""A step of `DistributedDataParallel`: a small transformer, gloo, the same function under both
launchers.

The median of a rank's steps, and of ranks the slowest one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.end_to_end.contenders import Quantity, Row, main
from benchmarks.end_to_end.programs.training import milliseconds_a_step
from benchmarks.end_to_end.ranks import contenders, slowest
from benchmarks.targets import Target


def measured(launch: Callable[..., Any], ranks: int, steps: int) -> dict[str, float]:
    return slowest(launch(ranks, milliseconds_a_step, steps))


ROW = Row(
    name="ddp_step",
    title="A step of DistributedDataParallel, small transformer, gloo",
    contenders=contenders(measured),
    quantities={"a step": Quantity("ms", {"torchrun": Target(1 / 1.02, 1)})},
    settings={"ranks": 4, "steps": 60},
)


if __name__ == "__main__":
    main(ROW)
