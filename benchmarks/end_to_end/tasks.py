"""Many short tasks over a few processes: `python -m benchmarks.end_to_end.tasks --tasks 100000`, from the repository's root.

A task sleeps for a millisecond and returns a number. One client asks for all of them, as fast as it may, and adds up the answers. What
takes part: this package, as a `monarch.service`; `concurrent.futures`; Ray's tasks and Dask's futures, where these are installed. The
*ideal* is as many processes that do their share in a loop, and hear of nothing: sleeping takes them some 6 % longer than a millisecond.

Each takes its turn in a process of its own, as often as there are rounds. Processes are started, and have done some tasks, before the
clock starts.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from monarch.actor import Actor, endpoint, this_host
from monarch.service import Service

SECONDS = 0.001
WARM_UP = 20  # tasks for each process
_PATIENCE = 1800.0


def task(number: int) -> int:
    time.sleep(SECONDS)
    return number


class Worker(Actor):
    @endpoint
    def task(self, number: int) -> int:
        return task(number)


def measured(do: Callable[[int], int], tasks: int, processes: int) -> float:
    """The seconds that `do` takes to do so many tasks, and to add up what they return."""
    do(WARM_UP * processes)
    begun = time.perf_counter()
    total = do(tasks)
    took = time.perf_counter() - begun
    assert total == tasks * (tasks - 1) // 2, "an answer is missing"
    return took


def with_service(tasks: int, processes: int) -> float:
    with Service(this_host(), Worker, replicas=processes) as service:
        service.scale(processes).get()

        def do(count: int) -> int:
            answers = [service.task.call_one(number) for number in range(count)]
            return sum(answer.get() for answer in answers)

        return measured(do, tasks, processes)


def with_concurrent_futures(tasks: int, processes: int) -> float:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(processes) as pool:

        def do(count: int) -> int:
            answers = [pool.submit(task, number) for number in range(count)]
            return sum(answer.result() for answer in answers)

        return measured(do, tasks, processes)


def with_ray(tasks: int, processes: int) -> float:
    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=processes, include_dashboard=False, logging_level="error", log_to_driver=False)
    remote: Any = ray.remote(num_cpus=1)(task)

    def do(count: int) -> int:
        return sum(ray.get([remote.remote(number) for number in range(count)]))

    took = measured(do, tasks, processes)
    ray.shutdown()
    return took


def with_dask(tasks: int, processes: int) -> float:
    dask: Any = importlib.import_module("distributed")
    with (
        dask.LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None) as cluster,
        dask.Client(cluster) as client,
    ):

        def do(count: int) -> int:
            return sum(client.gather(client.map(task, range(count), pure=False)))

        return measured(do, tasks, processes)


def _share(barrier: Any, count: int) -> None:
    barrier.wait()
    for number in range(count):
        task(number)


def ideally(tasks: int, processes: int) -> float:
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
    return time.perf_counter() - begun


CONTENDERS: dict[str, tuple[Callable[[int, int], float], str]] = {
    "ideal": (ideally, "multiprocessing"),
    "pymonarch": (with_service, "monarch"),
    "concurrent.futures": (with_concurrent_futures, "concurrent.futures"),
    "Ray": (with_ray, "ray"),
    "Dask": (with_dask, "distributed"),
}
"""By name: what measures it, and the module that it needs."""


def turn(name: str, tasks: int, processes: int) -> float:
    """The seconds of one contender, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        __spec__.name,
        "--only",
        name,
        "--tasks",
        str(tasks),
        "--processes",
        str(processes),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    for line in done.stdout.splitlines():
        if line.startswith("FOUND "):
            return float(line.removeprefix("FOUND "))
    raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")


def table(found: dict[str, list[float]], tasks: int) -> str:
    """As markdown: medians, and how they compare with the ideal."""
    ideal = statistics.median(found["ideal"])
    rows = ["| | seconds | tasks/s | over the ideal |", "| --- | ---: | ---: | ---: |"]
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        over = "" if name == "ideal" else f"{100 * (middle / ideal - 1):.1f} %"
        rows.append(f"| {name} | {middle:.2f} | {tasks / middle:,.0f} | {over} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.tasks, options.processes, options.rounds) < 1:
        parser.error("tasks, processes and rounds are at least 1")
    if options.only:
        print("FOUND", CONTENDERS[options.only][0](options.tasks, options.processes))
        return
    there = [name for name, (_, module) in CONTENDERS.items() if importlib.util.find_spec(module) is not None]
    machine = describe()
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in there:
            found[name].append(turn(name, options.tasks, options.processes))
    print(f"{options.tasks:,} tasks of 1 ms over {options.processes} processes, medians of {options.rounds} rounds")
    print(f"{machine['cores']} cores, load before: {machine['load_before']}\n")
    print(table(found, options.tasks))
    if options.json:
        record = {"tasks": options.tasks, "processes": options.processes, "machine": machine, "seconds": found}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
