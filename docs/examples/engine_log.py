"""What the engine did and why: the log of the host agent, when a rank has been killed."""

import os
import re
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import monarch.actor
from monarch.actor import Actor, SupervisionError, endpoint, this_host
from monarch.config import configure


class Trainer(Actor):
    @endpoint
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        configure(file_log_level="info")
        monarch.actor.unhandled_fault_hook = lambda failure: None  # the program goes on
        with this_host().spawn_procs({"gpus": 2}, name="trainers") as procs:
            trainers = procs.spawn("trainers", Trainer)
            with suppress(SupervisionError):
                trainers.slice(gpus=1).die.call().get()
        (log,) = Path(".monarch/engine").glob("*/agent_*.log")
        text = "\n".join(line for line in log.read_text().splitlines() if "trainers[1]" in line)
        text = re.sub(r"(?m)^\S+ \S+", "2026-03-01 03:12:07.273", text)  # the same in each run
        print(re.sub(r"client\S+", "client4710", re.sub(r"process \d+", "process 4711", text)))
