"""Actors, tasks, shared data and a death.

What the same is on Ray is in docs/examples/others/ray_program.py.
"""

import logging
import os

import numpy

from monarch.actor import Actor, SupervisionError, current_rank, endpoint, pool, this_host
from monarch.supervision import OneForOne

logging.getLogger("monarch.supervision").setLevel(logging.ERROR)  # each restart is a warning there


# region actors
class Trainer(Actor):
    @endpoint
    def train(self, step: int) -> int:
        return current_rank().rank * step

    @endpoint
    def total(self, weights: "numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]") -> float:
        return float(weights.sum())

    @endpoint
    def exit(self) -> None:
        os._exit(1)


procs = this_host().spawn_procs({"gpus": 4}, restart=OneForOne(max_restarts=1, within=60))
trainers = procs.spawn("trainers", Trainer)
results = trainers.train.call(step=3).get()
assert results.values() == [0, 3, 6, 9]
# endregion

# region arrive
arrived = [future.get() for future in trainers.train.stream(step=3)]
assert sorted(arrived) == [0, 3, 6, 9]
# endregion

# region data
weights = numpy.ones(1_000_000)
# pickled once, one shared-memory segment for all ranks of a host
totals = trainers.total.call(weights).get()
assert totals.values() == [1e6] * 4
# endregion

# region death
try:
    trainers.slice(gpus=1).exit.call_one().get()
except SupervisionError as error:
    print(type(error).__name__)
# rank 0 of a mesh of one: see the table
assert trainers.slice(gpus=1).train.call_one(step=3).get() == 0
# the same handle, with the rank that took its place
assert trainers.train.call(step=3).get().values() == [0, 3, 6, 9]
# endregion


# region tasks
def square(number: int) -> int:
    return number * number


with pool(procs, square) as squares:
    assert sum(squares.map(range(100))) == 328350
# endregion
