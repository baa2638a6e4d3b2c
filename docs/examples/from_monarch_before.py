"""A rank dies, as a program for Monarch 0.7 handles it.

It runs there and here; docs/examples/from_monarch.py is shorter.
"""

import os

# 0.7 has no other
from monarch._rust_bindings.monarch_hyperactor.supervision import SupervisionError  # type: ignore[import-not-found]

import monarch.actor
from monarch.actor import Actor, MeshFailure, current_rank, endpoint, this_host


class Trainer(Actor):
    @endpoint
    def train(self, step: int) -> int:
        return current_rank().rank * step

    @endpoint
    def exit(self) -> None:
        os._exit(1)


def ignore(failure: MeshFailure) -> None:
    """The default would end the program."""


# region death
def start() -> Trainer:
    return this_host().spawn_procs({"gpus": 4}).spawn("trainers", Trainer)


def main() -> None:
    monarch.actor.unhandled_fault_hook = ignore
    trainers = start()
    try:
        trainers.slice(gpus=1).exit.call_one().get()
    except SupervisionError:
        trainers = start()  # all of them again
    assert [value for _, value in trainers.train.call(step=3).get().items()] == [0, 3, 6, 9]


# endregion

if __name__ == "__main__":
    main()
