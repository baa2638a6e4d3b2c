"""Map and reduce over files: `python -m benchmarks.end_to_end.files --files 200` is a quick look.

Each of 2,000 files has 2,000 words. Two processes count the words of one file at a time, and the
client adds up the counts. What takes part: this package, as a `pool` of actors; Ray's tasks;
`concurrent.futures`, a file at a time as the others. Processes are started, and have counted some
files, before the clock starts.
"""

from __future__ import annotations

import importlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target
from monarch.actor import pool, this_host

WORDS = 2000  # in a file
DIFFERENT = 5000
WARM_UP = 20  # files


def write(folder: Path, files: int) -> list[str]:
    chance = random.Random(0)
    words = [f"word{number}" for number in range(DIFFERENT)]
    paths = []
    for number in range(files):
        path = folder / f"{number}.txt"
        path.write_text(" ".join(chance.choices(words, k=WORDS)))
        paths.append(str(path))
    return paths


def count(path: str) -> dict[str, int]:
    """How often each word stands in a file."""
    with open(path) as file:
        return dict(Counter(file.read().split()))


def measured(
    files: int, do: Callable[[Sequence[str]], Iterable[dict[str, int]]]
) -> dict[str, float]:
    """The seconds that it takes to count the words of all files, and to add up the counts."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), files)
        for _ in do(paths[:WARM_UP]):
            pass
        begun = time.perf_counter()
        total: Counter[str] = Counter()
        for counts in do(paths):
            total.update(counts)
        took = time.perf_counter() - begun
    assert total.total() == files * WORDS, "a count is missing"
    return {"all": took}


def with_pool(files: int, processes: int) -> dict[str, float]:
    procs = this_host().spawn_procs({"workers": processes})
    with pool(procs, count) as workers:
        return measured(files, workers.map)


def with_concurrent_futures(files: int, processes: int) -> dict[str, float]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(processes) as workers:
        return measured(files, lambda paths: workers.map(count, paths))


def with_ray(files: int, processes: int) -> dict[str, float]:
    ray: Any = importlib.import_module("ray")
    ray.init(
        num_cpus=processes, include_dashboard=False, logging_level="error", log_to_driver=False
    )
    remote: Any = ray.remote(num_cpus=1)(count)

    def do(paths: Sequence[str]) -> Iterable[dict[str, int]]:
        found: list[dict[str, int]] = ray.get([remote.remote(path) for path in paths])
        return found

    took = measured(files, do)
    ray.shutdown()
    return took


ROW = Row(
    name="files",
    title="Map and reduce over 2,000 files, 2 processes",
    contenders={
        OURS: Contender(with_pool),
        "concurrent.futures": Contender(with_concurrent_futures),
        "Ray": Contender(with_ray, ("ray",)),
    },
    quantities={"all": Quantity("s", {"concurrent.futures": Target(1), "Ray": Target(1)})},
    settings={"files": 2000, "processes": 2},
)


if __name__ == "__main__":
    main(ROW)
