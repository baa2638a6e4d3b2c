"""A training loop that survives the death of a trainer: all ranks start again and go on from the
last checkpoint.

The script kills one of them for real, with SIGKILL, in the middle of the training. The strategy
`AllForOne` then starts every process of the mesh again, and the trainers on them. The handle stays
good; all that the loop sees is a failed call.

    python examples/surviving_trainer.py
"""

import json
import logging
import math
import os
import signal
import tempfile
import time
from pathlib import Path

from monarch.actor import Actor, SupervisionError, current_rank, endpoint, this_host
from monarch.supervision import AllForOne, incarnations

WORLD = 4
STEPS = 20
CHECKPOINT_EVERY = 5
KILL_AT = 13  # between two checkpoints, so that some steps must be done again
VICTIM = 2
LEARNING_RATE = 0.2
PAUSE_S = 0.05


class LostState(Exception):
    """The trainer is not where the caller believes it to be: it has started again meanwhile."""


class Trainer(Actor):
    """Moves a weight, which is its whole model, towards a target that differs from rank to rank."""

    def __init__(self, folder: Path) -> None:
        rank = current_rank().rank
        self.checkpoints = folder / f"rank-{rank}"
        self.target = 1.0 + rank
        self.step, self.weight = 0, 0.0

    @endpoint
    def train(self, step: int) -> float:
        """Do this step; returns the weight after it."""
        self.check(step)
        self.weight += LEARNING_RATE * (self.target - self.weight)
        self.step += 1
        return self.weight

    @endpoint
    def save(self, step: int) -> None:
        self.check(step)
        self.checkpoints.mkdir(exist_ok=True)
        unfinished = self.checkpoints / "unfinished"
        unfinished.write_text(json.dumps(self.weight))
        # all or nothing, should this process die now
        unfinished.replace(self.checkpoints / f"{step}.json")

    @endpoint
    def restore(self, step: int) -> None:
        self.weight = json.loads((self.checkpoints / f"{step}.json").read_text()) if step else 0.0
        self.step = step

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    def check(self, step: int) -> None:
        if step != self.step:
            raise LostState(f"at step {self.step}, not {step}")


def train(trainers: Trainer) -> tuple[list[int], list[float]]:
    """Every step in the order in which they were done, and the weights at the end.

    Each call says which step it means. So it does not matter whether a failure shows as a call that
    fails, or only in the next call, to a trainer that is new; nor whether the others had done the
    step when one died.
    """
    victim = trainers.pid.call().get()[VICTIM]
    killed = resume = False
    done: list[int] = []
    weights: list[float] = []
    step = checkpoint = 0
    while step < STEPS:
        if step == KILL_AT and not killed:
            print(f"step {step:2}: trainer {VICTIM} is killed", flush=True)
            os.kill(victim, signal.SIGKILL)
            killed = True
        try:
            if resume:
                trainers.restore.call(checkpoint).get()  # waits until the trainers are there again
                step = checkpoint
            weights = trainers.train.call(step).get().values()
            if resume:
                print(f"step {step:2}: resumed from the checkpoint", flush=True)
            resume = False
            done.append(step)
            step += 1
            if step % CHECKPOINT_EVERY == 0:
                trainers.save.call(step).get()
                checkpoint = step  # only now: every rank has it
                print(
                    f"step {step:2}: saved, weights {[round(weight, 3) for weight in weights]}",
                    flush=True,
                )
        except (SupervisionError, LostState):
            if not resume:
                print(f"step {step:2}: failed, as a trainer died", flush=True)
            resume = True
            time.sleep(PAUSE_S)  # the old trainers may still be ending
    return done, weights


def main() -> None:
    # a restart is a warning there, which says why
    logging.getLogger("monarch.supervision").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        strategy = AllForOne(max_restarts=3, within=600)
        procs = this_host().spawn_procs({"gpus": WORLD}, name="gpus", restart=strategy)
        trainers = procs.spawn("trainers", Trainer, Path(folder))
        done, weights = train(trainers)
        restarts = incarnations(trainers).get().values()
        procs.stop().get()

    again = sorted(step for step in set(done) if done.count(step) > 1)
    print(f"all {STEPS} steps done, {again} twice; incarnations {restarts}")
    assert set(done) == set(range(STEPS))
    assert again == list(range(KILL_AT - KILL_AT % CHECKPOINT_EVERY, KILL_AT))
    assert all(restart > 0 for restart in restarts)
    for rank, weight in enumerate(weights):  # as if nothing had happened
        assert math.isclose(weight, (1.0 + rank) * (1 - (1 - LEARNING_RATE) ** STEPS))


if __name__ == "__main__":
    main()
