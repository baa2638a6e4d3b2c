"""Images through the workers of a `DataLoader` into 4 ranks, the same function under both
launchers: `python -m benchmarks.end_to_end.loader --images 800` is a quick look.

Each rank has a worker process, which unpacks, crops and normalizes images. The clock runs for the
second epoch, from one barrier of all ranks to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.end_to_end.contenders import Quantity, Row, main
from benchmarks.end_to_end.ranks import contenders, slowest
from benchmarks.targets import Target


def measured(launch: Callable[..., Any], ranks: int, images: int) -> dict[str, float]:
    from benchmarks.end_to_end.programs.images import seconds_an_epoch

    seconds = slowest(launch(ranks, seconds_an_epoch, images))
    return {"all ranks": images / seconds["an epoch"]}


ROW = Row(
    name="loader",
    title="Images through DataLoader's workers into 4 ranks",
    contenders=contenders(measured),
    quantities={
        "all ranks": Quantity("images/s", {"torchrun": Target(1 / 1.02, 1)}, better="higher")
    },
    settings={"ranks": 4, "images": 4000},
)


if __name__ == "__main__":
    main(ROW)
