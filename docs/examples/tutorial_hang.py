"""Tutorial 6: three ranks wait for the fourth, which waits for data that never comes."""

# region program
import os
import re

from monarch.actor import Actor, SupervisionError, endpoint, this_host
from monarch.why import why


class Trainer(Actor):
    def __init__(self) -> None:
        self.data, _ = os.pipe()  # has no writer: a loader that hangs

    @endpoint
    def step(self, third: "Trainer") -> None:
        third.gradient.call_one().get()

    @endpoint
    def gradient(self) -> bytes:
        return self.next_batch()

    def next_batch(self) -> bytes:
        return os.read(self.data, 1)


# endregion


def same_in_each_run(text: str) -> str:
    text = re.sub(r"process \d+", "process 4711", re.sub(r"pipe:\[\d+\]", "pipe:[8321]", text))
    text = re.sub(r"(host|on) [\w.-]+(?=[,:])", r"\1 h1", text)
    return re.sub(r"Stuck(?: for \d+ s)?:", "Stuck for 43 s:", text)


def main() -> None:
    # region hang
    procs = this_host().spawn_procs({"gpus": 4}, name="trainers")
    trainers = procs.spawn("trainer", Trainer)
    waiting = trainers.without([2]).step.call(trainers.slice(gpus=2))
    # endregion

    # region timeout
    try:
        waiting.get(timeout=1)
    except TimeoutError as error:
        print(error)
    # endregion

    print()
    # region why
    verdict = why(seconds=0.2)
    # endregion
    while verdict.status != "stuck" or len(verdict.blamed) != 1:
        verdict = why(seconds=0.2)  # they are about to hang
    print(same_in_each_run(verdict.sentence))

    print()
    # region stacks
    stacks = procs.stacks().get()
    # endregion
    print(same_in_each_run(str(stacks)))

    print()
    # region stop
    procs.stop().get()
    assert isinstance(waiting.exception(), SupervisionError)
    print("the call has ended, too")
    # endregion


if __name__ == "__main__":
    main()
