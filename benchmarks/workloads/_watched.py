"""Ranks whose steps compute: `python -m benchmarks.dashboard --pairs` looks at them, or not."""

from __future__ import annotations

import json
import mmap
import sys
from hashlib import sha256

from monarch.actor import Actor, endpoint, this_host
from monarch.admin import access
from monarch.telemetry import step

RANKS = 16
_HASHED = bytes(8_000_000)  # in some 5 ms


class Trainer(Actor):
    """A rank."""

    @endpoint
    def step(self) -> None:
        """Compute."""
        step()
        sha256(_HASHED)


def main() -> None:
    """Print the link, and count steps in the first eight bytes of a file, until killed."""
    with open(sys.argv[1], "r+b") as file:
        done = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
    procs = this_host().spawn_procs(per_host={"gpus": RANKS})
    trainers = procs.spawn("trainers", Trainer)
    trainers.step.call().get()  # all processes are there
    print(json.dumps(access()), flush=True)
    while True:
        trainers.step.call().get()
        done[0] += 1


if __name__ == "__main__":
    main()
