"""A checkpoint of 2 GB, saved and loaded by 4 ranks with `torch.distributed.checkpoint`, the same
function under both launchers: `python -m benchmarks.end_to_end.checkpoint --megabytes 200` is a
quick look.

Each rank has a quarter of the rows of every matrix, as a `DTensor`. The folder is a new one on this
machine's disk, and is loaded from the cache of the file system.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.end_to_end.contenders import Quantity, Row, main
from benchmarks.end_to_end.ranks import contenders, slowest
from benchmarks.targets import Target


def measured(launch: Callable[..., Any], ranks: int, megabytes: int) -> dict[str, float]:
    from benchmarks.end_to_end.programs.shards import seconds_to_save_and_load

    with tempfile.TemporaryDirectory() as folder:
        return slowest(launch(ranks, seconds_to_save_and_load, megabytes, folder))


ROW = Row(
    name="checkpoint",
    title="A checkpoint of 2 GB from 4 ranks",
    contenders=contenders(measured),
    quantities={
        "save": Quantity("s", {"torchrun": Target(1 / 1.02, 1)}),
        "load": Quantity("s", {"torchrun": Target(1 / 1.02, 1)}),
    },
    settings={"ranks": 4, "megabytes": 2000},
    limit=600.0,
)


if __name__ == "__main__":
    main(ROW)
