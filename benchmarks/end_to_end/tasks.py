"""Many short tasks over a few processes: `python -m benchmarks.end_to_end.tasks --tasks 5000` is a
quick look.

A task sleeps for a millisecond and returns a number. One client asks for all of them, as fast as it
may, and adds up the answers. What takes part: this package, as a `monarch.service`;
`concurrent.futures`; Ray's tasks, where it is installed; Dask's futures. The *ideal* is as
many processes that do their share in a loop, and hear of nothing: sleeping takes them some 6 %
longer than a millisecond. Processes are started, and have done some tasks, before the clock starts.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from benchmarks.end_to_end.contenders import DASK, OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target
from monarch.actor import Actor, endpoint, this_host
from monarch.service import Service

SECONDS = 0.001
WARM_UP = 20  # tasks for each process


def task(number: int) -> int:
    time.sleep(SECONDS)
    return number


class Worker(Actor):
    @endpoint
    def task(self, number: int) -> int:
        return task(number)


def measured(do: Callable[[int], int], tasks: int, processes: int) -> dict[str, float]:
    """The seconds that `do` takes to do so many tasks, and to add up what they return."""
    do(WARM_UP * processes)
    begun = time.perf_counter()
    total = do(tasks)
    took = time.perf_counter() - begun
    assert total == tasks * (tasks - 1) // 2, "an answer is missing"
    return {"all": took}


def with_service(tasks: int, processes: int) -> dict[str, float]:
    with Service(this_host(), Worker, replicas=processes) as service:
        service.scale(processes).get()

        def do(count: int) -> int:
            answers = [service.task.call_one(number) for number in range(count)]
            return sum(answer.get() for answer in answers)

        return measured(do, tasks, processes)


def with_concurrent_futures(tasks: int, processes: int) -> dict[str, float]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(processes) as pool:

        def do(count: int) -> int:
            answers = [pool.submit(task, number) for number in range(count)]
            return sum(answer.result() for answer in answers)

        return measured(do, tasks, processes)


def with_ray(tasks: int, processes: int) -> dict[str, float]:
    ray: Any = importlib.import_module("ray")
    ray.init(
        num_cpus=processes, include_dashboard=False, logging_level="error", log_to_driver=False
    )
    remote: Any = ray.remote(num_cpus=1)(task)

    def do(count: int) -> int:
        return sum(ray.get([remote.remote(number) for number in range(count)]))

    took = measured(do, tasks, processes)
    ray.shutdown()
    return took


def with_dask(tasks: int, processes: int) -> dict[str, float]:
    dask: Any = importlib.import_module("distributed")
    with (
        dask.LocalCluster(
            n_workers=processes, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        dask.Client(cluster) as client,
    ):

        def do(count: int) -> int:
            return sum(client.gather(client.map(task, range(count), pure=False)))

        return measured(do, tasks, processes)


def _share(barrier: Any, count: int) -> None:
    barrier.wait()
    for number in range(count):
        task(number)


def ideally(tasks: int, processes: int) -> dict[str, float]:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes + 1)
    shares = [tasks // processes + (index < tasks % processes) for index in range(processes)]
    started = [context.Process(target=_share, args=(barrier, share)) for share in shares]
    for process in started:
        process.start()
    barrier.wait()
    begun = time.perf_counter()
    for process in started:
        process.join()
    return {"all": time.perf_counter() - begun}


ROW = Row(
    name="tasks",
    title="Many tasks of 1 ms over a few processes",
    contenders={
        OURS: Contender(with_service),
        "ideal": Contender(ideally),
        "concurrent.futures": Contender(with_concurrent_futures),
        "Ray": Contender(with_ray, ("ray",)),
        "Dask": Contender(with_dask, requirement=DASK),
    },
    quantities={
        "all": Quantity(
            "s", {"ideal": Target(1 / 1.1, 1 / 1.03), "Ray": Target(1), "Dask": Target(1)}
        )
    },
    settings={"tasks": 100_000, "processes": 8},
    limit=1800.0,
)


if __name__ == "__main__":
    main(ROW)
