"""Restart strategies: a mesh that stays up, under the same handle."""

import logging
import os
import signal

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
    def look_up(self, key: str) -> str:
        if not self.cold and context().actor_instance.rank["gpus"] == 0:
            # the out-of-memory killer, say, in the midst of the call
            os.kill(os.getpid(), signal.SIGKILL)
        return key.upper()

    @endpoint
    def exit(self) -> None:
        os._exit(9)


# region restart
procs = this_host().spawn_procs({"gpus": 2}, restart=OneForOne(max_restarts=3, within=60))
caches = procs.spawn("caches", Cache, capacity=100)

try:
    caches.slice(gpus=1).exit.call_one().get()
except SupervisionError as error:  # in flight: it is not repeated, as its effect is unknown
    assert error.failure.exit_code == 9

# the same handle; the call waits for the restart
assert caches.is_cold.call().get().values() == [False, True]
assert incarnations(caches).get().values() == [0, 1]
# endregion

# region retries
# looks something up, so it may be done twice
look_up = caches.look_up.options(timeout=5, retries=3)
# though rank 0 died, and was started again
assert look_up.call("a key").get().values() == ["A KEY", "A KEY"]
# endregion
assert incarnations(caches).get().values() == [1, 1]
