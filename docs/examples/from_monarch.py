"""A rank dies, and a strategy starts it again. docs/examples/from_monarch_before.py is the same for
Monarch 0.7.
"""

import logging
import os

from monarch.actor import Actor, SupervisionError, current_rank, endpoint, this_host
from monarch.supervision import OneForOne

logging.getLogger("monarch.supervision").setLevel(logging.ERROR)  # each restart is a warning there


class Trainer(Actor):
    @endpoint
    def train(self, step: int) -> int:
        return current_rank().rank * step

    @endpoint
    def exit(self) -> None:
        os._exit(1)


# region death
def main() -> None:
    procs = this_host().spawn_procs({"gpus": 4}, restart=OneForOne(max_restarts=1, within=60))
    trainers = procs.spawn("trainers", Trainer)
    try:
        trainers.slice(gpus=1).exit.call_one().get()
    except SupervisionError:
        pass  # that one rank is started again; the handle stays
    assert trainers.train.call(step=3).get().values() == [0, 3, 6, 9]


# endregion

if __name__ == "__main__":
    main()
