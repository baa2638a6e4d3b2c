"""Programs that hang, and the verdict on each."""

import os
import re
import subprocess
import sys
import threading
import time

from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.why import why


class Trainer(Actor):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.data, _ = os.pipe()  # has no writer

    @endpoint
    def step(self, third: "Trainer", what: str) -> None:
        getattr(third, what).call_one().get()

    @endpoint
    def next_batch(self) -> None:
        time.sleep(600)

    @endpoint
    def checkpoint(self) -> None:
        with self.lock:
            self.lock.acquire()

    @endpoint
    def tokenize(self) -> None:
        re.match("(a+)+$", "a" * 60 + "b")

    @endpoint
    def receive(self) -> None:
        os.read(self.data, 1)

    @endpoint
    def forward(self) -> None:
        while True:
            sum(range(1000))


def same_in_each_run(text: str) -> str:
    text = re.sub(r"process \d+", "process 4711", re.sub(r"pipe:\[\d+\]", "pipe:[8321]", text))
    text = re.sub(r"(host|on) [\w.-]+(?=[,:])", r"\1 h1", text)
    return re.sub(r"for \d+ s", "for 43 s", re.sub(r"Stuck:", "Stuck for 43 s:", text))


if __name__ == "__main__":
    configure(cleanup_timeout="100ms", process_exit_timeout="100ms")
    for what, status in {
        "next_batch": "stuck", "checkpoint": "stuck", "tokenize": "stuck", "receive": "stuck", "forward": "slow",
    }.items():  # fmt: skip
        with this_host().spawn_procs({"gpus": 8}, name="trainers") as procs:
            trainers = procs.spawn("trainer", Trainer)
            trainers.without([5]).step.broadcast(trainers.slice(gpus=5), what)
            # region program
            verdict = why(seconds=0.2)
            while (
                verdict.status != status
                or len(verdict.blamed) != 1
                or "7 ranks" not in verdict.sentence
            ):
                verdict = why(seconds=0.2)  # they are about to hang
            # endregion
            while what == "forward" and not verdict.sentence.endswith("runs."):
                verdict = why(seconds=0.2)  # it gets no time, on a machine that is busy
            print(same_in_each_run(verdict.sentence))
            if what == "receive":
                command = [
                    sys.executable,
                    "-m",
                    "monarch.tools",
                    "why",
                    "--program",
                    str(os.getpid()),
                ]
                shown = same_in_each_run(
                    subprocess.run(command, capture_output=True, text=True, check=False).stdout
                )
    print()
    print(re.sub(r"(the client, process 4711 on h1: ).*", r"\1... runs", shown), end="")
