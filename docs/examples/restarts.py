"""Restart strategies: a mesh that stays up, under the same handle."""

import logging
import os

from monarch.actor import Actor, SupervisionError, context, endpoint, this_host
from monarch.supervision import OneForOne, incarnations

logging.getLogger("monarch.supervision").setLevel(logging.ERROR)  # each restart is a warning there


class Cache(Actor):
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.cold = context().actor_instance.incarnation > 0  # started again: what it knew is gone

    @endpoint
    def is_cold(self) -> bool:
        return self.cold

    @endpoint
    def exit(self) -> None:
        os._exit(9)


# region restart
procs = this_host().spawn_procs({"gpus": 2}, restart=OneForOne(max_restarts=3, within=60))
caches = procs.spawn("caches", Cache, capacity=100)

try:
    caches.slice(gpus=1).exit.call_one().get()
except SupervisionError as error:  # in flight: it is not repeated, as nobody knows what it has done
    assert error.failure.exit_code == 9

assert caches.is_cold.call().get().values() == [False, True]  # the same handle; the call waits for the restart
assert incarnations(caches).get().values() == [0, 1]
# endregion
