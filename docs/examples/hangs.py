"""A job that hangs, as another terminal sees it: seven ranks wait for the eighth, which waits for data."""

import os
import re
import subprocess
import sys

from monarch.actor import Actor, current_rank, endpoint, this_host


# region trainers
class Trainer(Actor):
    def __init__(self) -> None:
        self.data, _ = os.pipe()  # nobody writes to it: a loader that hangs

    @endpoint
    def train(self, everybody: "Trainer") -> None:
        if current_rank().rank == 5:
            self.next_batch()
        everybody.slice(gpus=5).gradient.call_one().get()

    def next_batch(self) -> bytes:
        return os.read(self.data, 1)

    @endpoint
    def gradient(self) -> float:
        return 0.1


if __name__ == "__main__":
    procs = this_host().spawn_procs({"gpus": 8}, name="trainers")
    trainers = procs.spawn("trainer", Trainer)
    trainers.train.broadcast(trainers)
    # endregion

    # region program
    stacks = procs.stacks().get()
    while [len(each.ranks) for each in stacks.classes] != [7, 1]:  # they are about to hang
        stacks = procs.stacks().get()
    few = stacks.classes[-1]
    assert few.ranks == (5,) and few.headline.startswith("next_batch at hangs.py:")
    # endregion

    command = [sys.executable, "-m", "monarch.tools", "stacks", "--program", str(os.getpid()), "--mesh", "trainers"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(re.sub(r"process \d+", "process 4711", shown), end="")  # the same in each run
