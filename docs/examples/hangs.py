"""A job that hangs, as another terminal sees it: seven ranks wait for the eighth, which waits for
data.
"""

import os
import re
import subprocess
import sys

from monarch.actor import Actor, endpoint, this_host


# region trainers
class Trainer(Actor):
    def __init__(self) -> None:
        self.data, _ = os.pipe()  # has no writer: a loader that hangs

    @endpoint
    def train(self, fifth: "Trainer") -> None:
        fifth.gradient.call_one().get()

    @endpoint
    def gradient(self) -> int:
        return sum(self.next_batch())

    def next_batch(self) -> bytes:
        return os.read(self.data, 1)


if __name__ == "__main__":
    procs = this_host().spawn_procs({"gpus": 8}, name="trainers")
    trainers = procs.spawn("trainer", Trainer)
    trainers.without([5]).train.broadcast(trainers.slice(gpus=5))
    # endregion

    # region program
    def called(place: str) -> str:
        return place.partition(" at ")[0]

    stacks = procs.stacks().get()
    while [(len(each.ranks), called(each.headline)) for each in stacks.classes] != [
        (7, "get"),
        (1, "next_batch"),
    ]:
        stacks = procs.stacks().get()  # they are about to hang
    assert stacks.classes[-1].ranks == (5,)
    # endregion

    command = [
        sys.executable,
        "-m",
        "monarch.tools",
        "stacks",
        "--program",
        str(os.getpid()),
        "--mesh",
        "trainers",
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(re.sub(r"process \d+", "process 4711", shown), end="")  # the same in each run
