"""A job on two hosts, and what another terminal sees of it: while it runs, and after its end."""

import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

from monarch.actor import Actor, current_rank, endpoint
from monarch.job import ProcessJob


# region trainers
class Trainer(Actor):
    def __init__(self) -> None:
        self.rank = current_rank().rank

    @endpoint
    def step(self, number: int) -> None:
        print(f"step {number} loss {1 / number + self.rank / 100:.2f}")

    @endpoint
    def load(self, shard: int) -> None:
        logging.getLogger("data").error("shard %d is empty", shard)


# endregion


def terminal(line: str) -> None:
    """Show a command and what it prints, the same in each run."""
    _, *words = shlex.split(line)
    done = subprocess.run(
        [sys.executable, "-m", "monarch.tools", *words], capture_output=True, text=True, check=True
    )
    print(f"$ {line}\n{re.sub(TIME, tick, done.stdout + done.stderr)}")


TIME = r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d\.\d{3})"
ticks: dict[str, int] = {}


def tick(match: re.Match[str]) -> str:
    return f"2026-03-01 03:00:{ticks.setdefault(match[1], len(ticks)):02}.000"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["NO_COLOR"] = "1"
        job = ProcessJob({"hosts": 2})
        procs = job.state().hosts.spawn_procs({"gpus": 2}, name="trainers")
        procs.logging_option(stream_to_client=False).get()
        trainers = procs.spawn("trainers", Trainer)
        for number in (1, 2):
            for rank in range(4):
                trainers.select([rank]).step.call_one(number).get()
                time.sleep(0.01)  # which times show, and so their order
        trainers.select([3]).load.call_one(7).get()
        procs.flush_logs().get()

        terminal("monarch logs")
        terminal("monarch logs --rank hosts=1,gpus=0")
        job.kill()
        terminal("monarch logs --level error")
        terminal("monarch logs --grep 'step 2' --merge")
