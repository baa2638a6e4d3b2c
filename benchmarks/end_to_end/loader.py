"""Images through the workers of a `DataLoader` into 4 ranks, the same function under both
launchers: `python -m benchmarks.end_to_end.loader --images 800` is a quick look.

Each rank has a worker process, which unpacks, crops and normalizes images. The clock runs for the
second epoch, from one barrier of all ranks to the next.
"""

from __future__ import annotations

from benchmarks.end_to_end import ranks as launched
from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target


def images_a_second(images: int, seconds: dict[str, float]) -> dict[str, float]:
    return {"all ranks": images / seconds["an epoch"]}


def with_actors(ranks: int, images: int) -> dict[str, float]:
    from benchmarks.end_to_end.programs.images import seconds_an_epoch

    found = launched.with_actors(ranks, seconds_an_epoch, images)
    return images_a_second(images, launched.slowest(found))


def with_torchrun(ranks: int, images: int) -> dict[str, float]:
    from benchmarks.end_to_end.programs.images import seconds_an_epoch

    found = launched.with_torchrun(ranks, seconds_an_epoch, images)
    return images_a_second(images, launched.slowest(found))


ROW = Row(
    name="loader",
    title="Images through DataLoader's workers into 4 ranks",
    contenders={
        OURS: Contender(with_actors, ("torch",)),
        "torchrun": Contender(with_torchrun, ("torch",)),
    },
    quantities={
        "all ranks": Quantity("images/s", {"torchrun": Target(1 / 1.02, 1)}, better="higher")
    },
    settings={"ranks": 4, "images": 4000},
)


if __name__ == "__main__":
    main(ROW)
