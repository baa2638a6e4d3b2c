"""The cookbook of docs/telemetry.md, asked of a program: every question has an answer."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from pathlib import Path

from monarch import configure
from monarch.actor import Actor, endpoint, this_host
from monarch.telemetry import Profile, QueryEngineClient
from monarch.telemetry import step as mark_step


class Trainer(Actor):
    @endpoint
    def step(self, batch: bytes) -> int:
        mark_step()
        logging.getLogger("trainer").warning("a batch of %d bytes", len(batch))
        return len(batch)

    @endpoint
    def hold(self, end: Path) -> None:
        while not end.exists():
            time.sleep(0.01)

    @endpoint
    def wait(self, other: Trainer, end: Path) -> None:
        other.hold.call_one(end).get()

    @endpoint
    def fail(self) -> None:
        raise ValueError("on purpose")


QUESTIONS = [
    text.strip()
    for text in Path(__file__).with_name("cookbook.sql").read_text().split(";\n")
    if text.strip()
]


def main() -> None:
    home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    os.chdir(home.name)  # its logs are kept there
    configure(telemetry="sampled", enable_file_capture=True)
    procs = this_host().spawn_procs({"gpus": 4}, name="ranks")
    procs.logging_option(stream_to_client=False)  # what they log is in files, and not shown
    # region ask
    trainers = procs.spawn("trainer", Trainer)
    trainers.step.call(bytes(1000)).get()
    client = QueryEngineClient()
    answer = client.query(
        "SELECT rank, handled FROM actors WHERE name = 'trainer' ORDER BY rank", timeout=5
    )
    assert answer["rows"][0] == {"rank": 0, "handled": 1}  # as in Monarch 0.7
    answer.arrow()  # for polars, pandas, pyarrow; .df() gives pandas' own
    assert not answer.silent  # hosts and processes that did not answer, and why
    # endregion
    # region profile
    # job.profile() is the same; a job with enable_telemetry() records messages
    with Profile() as profile:
        trainers.step.call(bytes(1000)).get()
    path = profile.export_perfetto_trace("step.pftrace")
    assert not profile.missing  # who did not answer, what is not in the file, and why
    # endregion
    assert path.stat().st_size > 1000
    trainers.slice(gpus=3).fail.call_one().exception(timeout=30)
    with tempfile.TemporaryDirectory() as folder:
        end = Path(folder, "end")
        waiting = trainers.slice(gpus=2).wait.call_one(trainers.slice(gpus=1), end)
        while not client.query("FROM waits WHERE for_actor_id IS NOT NULL", timeout=30).rows:
            time.sleep(0.05)
        while not client.query("FROM events", timeout=30).rows:
            time.sleep(0.05)
        answers = [client.query(question, timeout=30) for question in QUESTIONS]
        end.touch()
        waiting.get()
    procs.stop().get()
    without = [
        text.partition("\n")[0]
        for text, answer in zip(QUESTIONS, answers, strict=True)
        if not answer.rows and "a disk" not in text  # which some machine may have
    ]
    assert len(answers) == 27 and without == [
        "-- Which processes have ended, and how?",  # none has
        "-- Is a process stopped, or stuck in the kernel?",
        "-- Which actors have failed, and what has ended them?",
    ], without


if __name__ == "__main__":
    main()
