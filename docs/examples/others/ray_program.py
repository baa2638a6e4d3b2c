"""Actors, tasks, shared data and a death, on Ray. Its counterpart is docs/examples/from_ray.py."""

import os
import time

import numpy
import ray

ray.init(num_cpus=4)


# region actors
@ray.remote(max_restarts=1)
class Trainer:
    def __init__(self, rank):
        self.rank = rank

    def train(self, step):
        return self.rank * step

    def total(self, weights):
        return float(weights.sum())

    def exit(self):
        os._exit(1)


trainers = [Trainer.remote(rank) for rank in range(4)]
results = ray.get([each.train.remote(step=3) for each in trainers])
assert results == [0, 3, 6, 9]
# endregion

# region arrive
waiting = [each.train.remote(step=3) for each in trainers]
arrived = []
while waiting:
    done, waiting = ray.wait(waiting)
    arrived.append(ray.get(done[0]))
assert sorted(arrived) == [0, 3, 6, 9]
# endregion

# region data
weights = ray.put(numpy.ones(1_000_000))
totals = ray.get([each.total.remote(weights) for each in trainers])
assert totals == [1e6] * 4
# endregion

# region death
try:
    ray.get(trainers[1].exit.remote())
except ray.exceptions.RayActorError as error:
    print(type(error).__name__)
while True:
    try:
        assert ray.get(trainers[1].train.remote(step=3)) == 3  # by the actor that took its place
        break
    except ray.exceptions.ActorUnavailableError:
        time.sleep(0.1)  # it is being started
# endregion

for each in trainers:
    ray.kill(each)  # each holds a CPU, which tasks need


# region tasks
@ray.remote
def square(number):
    return number * number


assert sum(ray.get([square.remote(number) for number in range(100)])) == 328350
# endregion

ray.shutdown()
