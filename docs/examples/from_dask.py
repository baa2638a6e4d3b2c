"""Functions, data and an actor.

What the same is on Dask is in docs/examples/others/dask_program.py.
"""

import os
from concurrent.futures import as_completed
from typing import Any

from monarch.actor import Actor, current_rank, endpoint, pool, this_host


def square(number: int) -> int:
    return number * number


class Functions(Actor):
    @endpoint
    def square(self, number: int) -> int:
        return square(number)


class Summer(Actor):
    def __init__(self, weights: list[float]) -> None:
        self.weights = weights

    @endpoint
    def total(self) -> float:
        return sum(self.weights) * current_rank().rank


class Counter(Actor):
    def __init__(self) -> None:
        self.value = 0

    @endpoint
    def add(self, by: int) -> int:
        self.value += by
        return self.value


class Process(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


# region functions
procs = this_host().spawn_procs({"workers": 4})
with pool(procs, square) as squares:
    assert sum(squares.map(range(100))) == 328350
# endregion

# region arrive
functions = procs.spawn("functions", Functions)
# Any, as mypy wants another class of futures
futures: Any = [functions.square.choose(number) for number in range(4)]
arrived = [future.result() for future in as_completed(futures)]
assert sorted(arrived) == [0, 1, 4, 9]
# endregion

# region data
summers = procs.spawn("summers", Summer, [1.0] * 1000)  # each rank has it from the start
assert summers.total.call().get().values() == [0.0, 1000.0, 2000.0, 3000.0]
# endregion

# region actor
counter = procs.slice(workers=0).spawn("counter", Counter)
assert counter.add.call_one(2).get() == 2
assert counter.add.call_one(3).get() == 5
# endregion

# region everywhere
pids = procs.spawn("processes", Process).pid.call().get()
assert len(set(pids.values())) == 4
# endregion
