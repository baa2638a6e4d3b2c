"""Actors made one by one and called once each: 10,000 of ours; of Ray's, each a process, as many as
a machine can hold.

Ours share 8 procs, as they may. What is compared is the time for each actor: that of Ray's does not
fall with their number.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target
from monarch.actor import Actor, endpoint, this_host

PROCS = 8


class Counter(Actor):
    def __init__(self, number: int) -> None:
        self.number = number

    @endpoint
    def count(self) -> int:
        return self.number + 1


class RayCounter:
    def __init__(self, number: int) -> None:
        self.number = number

    def count(self) -> int:
        return self.number + 1


def measured(make_and_call: Callable[[int], list[int]], actors: int) -> dict[str, float]:
    begun = time.perf_counter()
    answers = make_and_call(actors)
    took = time.perf_counter() - begun
    if answers != [number + 1 for number in range(actors)]:
        raise RuntimeError("an actor has counted wrong")
    return {"each actor": 1000 * took / actors}


def with_ours(actors: int, ray_actors: int) -> dict[str, float]:
    procs = this_host().spawn_procs({"procs": PROCS})
    procs.spawn("warm", Counter, 0).count.call().get()

    def make_and_call(count: int) -> list[int]:
        made = [
            procs.slice(procs=number % PROCS).spawn(f"c{number}", Counter, number)
            for number in range(count)
        ]
        return [answer.get() for answer in [each.count.call_one() for each in made]]

    return measured(make_and_call, actors)


def with_ray(actors: int, ray_actors: int) -> dict[str, float]:
    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=PROCS, include_dashboard=False, logging_level="error", log_to_driver=False)
    remote: Any = ray.remote(num_cpus=0)(RayCounter)
    ray.get(remote.remote(0).count.remote())

    def make_and_call(count: int) -> list[int]:
        made = [remote.remote(number) for number in range(count)]
        answers: list[int] = ray.get([each.count.remote() for each in made])
        return answers

    found = measured(make_and_call, ray_actors)
    ray.shutdown()
    return found


ROW = Row(
    name="actors",
    title="Actors made and called once; Ray's are fewer, as each is a process",
    contenders={OURS: Contender(with_ours), "Ray": Contender(with_ray, ("ray",))},
    quantities={"each actor": Quantity("ms", {"Ray": Target(10, 30)})},
    settings={"actors": 10_000, "ray_actors": 40},
)


if __name__ == "__main__":
    main(ROW)
