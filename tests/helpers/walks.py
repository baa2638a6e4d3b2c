"""The troubles of the walk in docs/hangs.md, and what is to be seen of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

WALKS = {
    "missing-collective": ("Stuck", "trainers[10]", "recv_into (data.py:31)"),
    "straggler": ("Slow", "trainers[10]", "slower than the others by"),
    "lost-rank": ("Stuck", "without trainers[10]: the process exited with non", "zero code 3, "),
    "dead-rank": (
        "Stuck",
        "without trainers[10]",
        "had used all of the 236,223 MB that it may have",
    ),
    "silent-host": ("Stuck", "host trainers[1] (tcp://10.0.0.2:26600)", "does not answer"),
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

Action = tuple[str, Sequence[str]]
"""A command, keys or the name of a link, and what is to be seen then."""

_OF_RANK = "logs --mesh trainers --rank 10"
COMMANDS: Mapping[str, Sequence[Action]] = {
    "missing-collective": [
        (
            "stacks --mesh trainers --rank 10",
            ["1 rank [10]", "> read_shard  /home/me/run/data.py:31"],
        ),
        (_OF_RANK, ["10.9.0.7:9000 accepted, and has sent no bytes yet"]),
    ],
    "straggler": [(_OF_RANK, ["GPU 00000000:3B:00.0: SW Thermal Slowdown: Active"])],
    "lost-rank": [(_OF_RANK, ["shard 17 is corrupt: the loader gives up"])],
    "dead-rank": [(_OF_RANK, ["cache of shards: 217 GiB of the memory of the job are in use"])],
    "silent-host": [("list", ["host trainers[1] (tcp://10.0.0.2:26600) can't be reached"])],
    "pending-job": [
        (
            "stacks",
            ["waits for Slurm job 9: PENDING (Resources)", "> main  /home/me/run/main.py:18"],
        )
    ],
}
"""Of each trouble what is typed after `monarch why`, the first action."""

KEYS: Mapping[str, Sequence[Action]] = {
    "missing-collective": [
        ("\r", ["> read_shard run/data.py:31"]),
        ("\r", ["10.9.0.7:9000 accepted, and has sent no bytes yet"]),
    ],
    "straggler": [
        ("\r", ["Enter logs"]),
        ("\r", ["lines of mesh=trainers rank=10", "trainers[10] step "]),
    ],
    "lost-rank": [
        ("6", ["the process exited with non-zero code 3", "Enter last output"]),
        ("\r", ["shard 17 is corrupt: the loader gives up"]),
    ],
    "dead-rank": [
        (
            "6",
            [
                "the processes of the control group /sys/fs/cgroup/job_9 had used",
                "Enter last output",
            ],
        ),
        ("\r", ["cache of shards: 217 GiB of the memory of the job are in use"]),
    ],
    "silent-host": [("6", ["! trainers[1] (tcp://10.0.0.2:26600) did not answer"])],
    "pending-job": [("\r", ["> main run/main.py:18"])],
}
"""What is typed after `monarch tui`, the first action."""

_AROUND = "a:text-is('logs around then')"
LINKS: Mapping[str, Sequence[Action]] = {
    "missing-collective": [
        ("a:text-is('its stack')", ["trainers[10] 1 of 24", "read_shard run/data.py:31"]),
        (_AROUND, ["10.9.0.7:9000 accepted, and has sent no bytes yet"]),
    ],
    "straggler": [
        ("a:text-is('step times')", ["trainers[10] on trainers[1] on h1:"]),
        ("td:nth-child(3) a", ["trainers[10]", "loss 2."]),
    ],
    "lost-rank": [(_AROUND, ["shard 17 is corrupt: the loader gives up"])],
    "dead-rank": [(_AROUND, ["cache of shards: 217 GiB of the memory of the job are in use"])],
    "silent-host": [
        ("a.button:text-is('hosts')", ["Did not answer", "trainers[1] (tcp://10.0.0.2:26600): did"])
    ],
    "pending-job": [("a.verdict", ["main run/main.py:18", "Slurm job 9: PENDING (Resources)"])],
}
"""What is clicked after the link of `monarch dashboard`, the first action, as a CSS selector."""

MOST_ACTIONS = 3


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
