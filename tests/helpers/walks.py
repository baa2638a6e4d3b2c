"""The troubles of the walk in docs/hangs.md, and what is to be seen of each."""

from __future__ import annotations

import re

WALKS = {
    "missing-collective": ("Stuck", "trainers[10]", "recv_into (data.py:31)"),
    "straggler": ("Slow", "trainers[10]", "slower than the others by"),
    "lost-rank": ("Stuck", "without trainers[10]: the process exited with non", "zero code 3, "),
    "dead-rank": (
        "Stuck",
        "without trainers[10]",
        "had used all of the 236,223 MB that it may have",
    ),
    "silent-host": ("Stuck", "host h1 (tcp://10.0.0.2:26600)", "does not answer"),
    "pending-job": (
        "Fine",
        "the client is in state (main.py:18)",
        "Slurm job 9: PENDING (Resources)",
    ),
}
"""Of each trouble what the first action has to show: a hang, a straggler, a lost rank, memory that
ran out, a failed host, a job that waits for its hosts.
"""

STATUS = {"Fine": 0, "Slow": 3, "Stuck": 4}
"""Exit statuses of `monarch why`."""


GOES_ON = """
    import os, sys, threading
    from monarch.actor import Actor, current_rank, endpoint, this_host
    from monarch.errors import SupervisionError

    class Trainer(Actor):
        @endpoint
        def work(self):
            sum(range(1_000_000))
        @endpoint
        def die(self):
            os._exit(3)

    class Boss(Actor):
        def __supervise__(self, failure):
            return True
        @endpoint
        def train(self):
            trainers = this_host().spawn_procs({"gpus": 4}, name="trainers").spawn("trainer", Trainer)
            try:
                trainers.slice(gpus=2).die.call_one().get()
            except SupervisionError:
                print("lost", flush=True)
            left = trainers.slice(gpus=slice(0, 2))
            while True:
                left.work.call().get()

    if __name__ == "__main__":
        boss = this_host().spawn_procs(name="bosses").spawn("boss", Boss)
        threading.Thread(target=boss.train.call_one().get, daemon=True).start()
        sys.stdin.read()
        os._exit(0)
    """
"""A program that has lost trainers[2], and goes on with others; ``[bosses 0] lost`` says so."""


def plain(text: str) -> str:
    """A text without the ends of lines at which it was folded."""
    return re.sub(r"\s+", " ", text)
