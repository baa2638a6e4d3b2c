"""New weights, from two trainers to four generators that divide them otherwise:
`python -m benchmarks.end_to_end.weights`.

Each trainer has half of the rows of every matrix, as under FSDP. Each generator wants a quarter of
the rows of every second one and a quarter of the columns of the others, as under tensor
parallelism. The clock starts when the trainers have new values in their arrays, and stops when all
generators have theirs in arrays of their own. What takes part: `monarch.rdma.Replica`; Ray's object
store, into which trainers put their shards, and from which generators copy their parts. The *copy*
is the same bytes, from array to array within one process. torchstore is not among them: its
last release, 0.1.2, refuses to start on Monarch 0.7 (see `benchmarks/README.md`).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target
from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.rdma import Replica, SharedState, Split, share_state

SIDE = 2048  # rows and columns of a matrix of 4-byte numbers: 16 MiB
TRAINERS, GENERATORS = 2, 4
WARM_UP = 1  # versions before those that count
VERSIONS = 2  # of which the mean is taken


def matrices(megabytes: int) -> int:
    return max(2, megabytes * 1_000_000 // (4 * SIDE * SIDE))


class Shard:
    """What a trainer has: rows of each matrix."""

    def __init__(self, count: int) -> None:
        self.weights = [np.zeros((SIDE // TRAINERS, SIDE), np.float32) for _ in range(count)]

    def train(self, version: int) -> None:
        for number, matrix in enumerate(self.weights):
            matrix[:] = 100 * version + number


class Part:
    """What a generator has: rows of matrices with an even number, columns of the others."""

    def __init__(self, count: int, rank: int) -> None:
        size = SIDE // GENERATORS
        self.at = slice(rank * size, (rank + 1) * size)
        self.weights = [
            np.zeros((SIDE, size) if n % 2 else (size, SIDE), np.float32) for n in range(count)
        ]

    def copy(self, number: int, shards: list[Any]) -> None:
        """Take one matrix from the shards of all trainers."""
        size = SIDE // TRAINERS
        for trainer, shard in enumerate(shards):
            if number % 2:
                self.weights[number][trainer * size : (trainer + 1) * size] = shard[:, self.at]
            else:
                first, last = (
                    max(self.at.start, trainer * size),
                    min(self.at.stop, (trainer + 1) * size),
                )
                if first < last:
                    self.weights[number][first - self.at.start : last - self.at.start] = shard[
                        first - trainer * size : last - trainer * size
                    ]

    def check(self, version: int) -> None:
        for number, matrix in enumerate(self.weights):
            assert (matrix == 100 * version + number).all(), (
                f"matrix {number} is not of version {version}"
            )


class Trainer(Actor):
    def __init__(self, count: int) -> None:
        self.shard = Shard(count)
        rows = Split(0, current_rank().rank, TRAINERS)
        self.shared = share_state(self.shard.weights, shards=rows, copy=False)

    @endpoint
    def share(self) -> SharedState:
        return self.shared

    @endpoint
    def train(self, version: int) -> None:
        with self.shared.writing():
            self.shard.train(version)


class Generator(Actor):
    def __init__(self, count: int, sources: list[SharedState]) -> None:
        rank = current_rank().rank
        self.part = Part(count, rank)
        self.replica = Replica(
            sources, self.part.weights, shards=lambda name: Split(name[0] % 2, rank, GENERATORS)
        )

    @endpoint
    def pull(self) -> None:
        self.replica.pull().get()

    @endpoint
    def check(self, version: int) -> None:
        self.part.check(version)


def measured(
    train: Callable[[int], object], deliver: Callable[[], object], check: Callable[[int], object]
) -> dict[str, float]:
    took = 0.0
    for version in range(1, WARM_UP + VERSIONS + 1):
        train(version)
        begun = time.perf_counter()
        deliver()
        took += (time.perf_counter() - begun) * (version > WARM_UP)
        check(version)
    return {"all": took / VERSIONS}


def with_replicas(megabytes: int) -> dict[str, float]:
    count = matrices(megabytes)
    trainers = this_host().spawn_procs({"trainers": TRAINERS}).spawn("trainers", Trainer, count)
    sources = list(trainers.share.call().get().values())
    generators = (
        this_host().spawn_procs({"g": GENERATORS}).spawn("generators", Generator, count, sources)
    )
    return measured(
        lambda version: trainers.train.call(version).get(),
        lambda: generators.pull.call().get(),
        lambda version: generators.check.call(version).get(),
    )


class RayTrainer(Shard):
    def put(self) -> list[Any]:
        ray: Any = importlib.import_module("ray")
        return [ray.put(matrix) for matrix in self.weights]


class RayGenerator(Part):
    def get(self, shards: list[list[Any]]) -> None:
        ray: Any = importlib.import_module("ray")
        for number, refs in enumerate(zip(*shards, strict=True)):
            self.copy(number, ray.get([*refs]))


def with_ray(megabytes: int) -> dict[str, float]:
    ray: Any = importlib.import_module("ray")
    count = matrices(megabytes)
    store = 3 * megabytes * 1_000_000  # one version may still be there when the next one comes
    ray.init(
        num_cpus=TRAINERS + GENERATORS,
        object_store_memory=max(store, 100_000_000),
        include_dashboard=False,
        logging_level="error",
        log_to_driver=False,
    )
    trainers = [ray.remote(num_cpus=1)(RayTrainer).remote(count) for _ in range(TRAINERS)]
    generators = [
        ray.remote(num_cpus=1)(RayGenerator).remote(count, rank) for rank in range(GENERATORS)
    ]

    def deliver() -> None:
        shards = ray.get([trainer.put.remote() for trainer in trainers])
        ray.get([generator.get.remote(shards) for generator in generators])

    took = measured(
        lambda version: ray.get([trainer.train.remote(version) for trainer in trainers]),
        deliver,
        lambda version: ray.get([generator.check.remote(version) for generator in generators]),
    )
    ray.shutdown()
    return took


def with_one_process(megabytes: int) -> dict[str, float]:
    count = matrices(megabytes)
    trainers = [Shard(count) for _ in range(TRAINERS)]
    generators = [Part(count, rank) for rank in range(GENERATORS)]

    def deliver() -> None:
        for generator in generators:
            for number in range(count):
                generator.copy(number, [trainer.weights[number] for trainer in trainers])

    def train(version: int) -> None:
        for trainer in trainers:
            trainer.train(version)

    def check(version: int) -> None:
        for generator in generators:
            generator.check(version)

    return measured(train, deliver, check)


ROW = Row(
    name="weights",
    title="Weights from 2 trainers to 4 generators, resharded",
    contenders={
        OURS: Contender(with_replicas),
        "copy": Contender(with_one_process),
        "Ray": Contender(with_ray, ("ray",)),
    },
    quantities={"all": Quantity("s", {"Ray": Target(3)})},
    settings={"megabytes": 1000},
)


if __name__ == "__main__":
    main(ROW)
