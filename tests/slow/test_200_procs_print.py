"""A mesh of 200 procs that all print can be read at the client, and its files are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.scripts import run_script
from monarch.logs.line import LogLine

pytestmark = pytest.mark.timeout(240)

PROCS = 200
STEPS = 20

SCRIPT = f"""
import logging
from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.config import configure

class Trains(Actor):
    @endpoint
    def load(self):
        print("loading the shards")

    @endpoint
    def train(self):
        rank = current_rank().rank
        for step in range({STEPS}):
            print(f"step {{step}} loss {{rank + step / 100:.2f}}")
        if rank == 7:
            logging.getLogger("a.library").error("a bad sample")

configure(host_spawn_ready_timeout="120s")  # so many take their time on a busy machine
procs = this_host().spawn_procs(per_host={{"gpus": {PROCS}}}, name="trainers")
trains = procs.spawn("trains", Trains)
window = %s
if window:
    procs.logging_option(aggregate_window_sec=window).get()
trains.load.call().get()
procs.flush_logs().get()
trains.train.call().get()
procs.flush_logs().get()
"""


def run(window: float | None, folder: Path) -> tuple[list[str], list[str]]:
    """What was seen on stdout and stderr."""
    result = run_script(
        SCRIPT % window, timeout=200, env={"HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": "1"}, cwd=folder
    )
    assert result.exit_code == 0, str(result)[-3000:]
    return result.stdout.splitlines(), result.stderr.splitlines()


def test_each_line_of_each_rank_is_seen_whole_once_and_in_order_and_is_in_its_file(
    tmp_path: Path,
) -> None:
    seen, errors = run(None, tmp_path)
    steps: dict[int, list[int]] = {rank: [] for rank in range(PROCS)}
    loading = 0
    for line in seen:
        match = re.fullmatch(
            r"\[trainers (\d+)\] (?:step (\d+) loss (\d+\.\d\d)|loading the shards)", line
        )
        assert match is not None, f"torn: {line!r}"
        if match[2] is None:
            loading += 1
        else:
            assert float(match[3]) == pytest.approx(int(match[1]) + int(match[2]) / 100)
            steps[int(match[1])].append(int(match[2]))
    assert loading == PROCS
    assert all(of_rank == list(range(STEPS)) for of_rank in steps.values())
    (error,) = errors
    assert re.fullmatch(r"\[trainers 7\] .*a bad sample", error)
    files = sorted(tmp_path.glob(".monarch/logs/*/*/trainers_*.jsonl"))
    assert len(files) == PROCS
    for path in files:
        lines = [LogLine.from_json(text) for text in path.read_text().splitlines()]
        printed = [line for line in lines if line.stream == "stdout"]
        assert [line.text.split(" loss")[0] for line in printed] == [
            "loading the shards", *(f"step {step}" for step in range(STEPS))
        ]  # fmt: skip
        assert {line.point for line in lines} == {f"gpus={lines[0].rank}"}


def test_with_a_window_a_person_reads_a_page_and_not_four_thousand_lines(tmp_path: Path) -> None:
    seen, errors = run(3600, tmp_path)
    assert len(seen) <= 2 * STEPS, "\n".join(seen[:100])
    loading = [line for line in seen if line.endswith("loading the shards")]
    assert 1 < len(loading) <= 5, "the first at once, the others together"
    counts = [re.search(r"\((\d+) lines\)", line) for line in seen if "loss" in line]
    assert sum(int(count[1]) if count else 1 for count in counts) == PROCS * STEPS, (
        "each line is in one of those shown"
    )
    assert len(errors) == 1, "an error is shown at once, and merged with nothing"
    assert "a bad sample" in errors[0]
