"""The verdict on a program that goes on without a rank, and since when its client waits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers.terminals import running
from helpers.waiting import wait_until
from helpers.walks import GOES_ON

pytestmark = pytest.mark.processes("a program, and commands beside it")


def test_a_program_that_goes_on_without_a_rank_is_degraded_and_says_since_when(
    tmp_path: Path,
) -> None:
    with running(GOES_ON, tmp_path) as program:
        program.wait_for("[bosses 0] lost")
        pid = str(program.pid)

        shown = []

        def degraded() -> bool:
            shown.append(program.monarch("why", "-p", pid, "--seconds", "0.2"))
            return shown[-1].stdout.startswith("Degraded")  # else a rank stands still by chance

        wait_until(degraded, what="it is seen to go on")
        assert shown[-1].returncode == 5
        sentence = shown[-1].stdout.partition("\n")[0]
        why = "the process exited with non-zero code 3, [0-9]+ (s|min) ago"
        assert re.fullmatch(rf"Degraded: goes on without trainers\[2\]: {why}\.", sentence)
        assert re.search(rf"\nfailures\n  trainers\[2\] has ended: {why}\n", shown[-1].stdout)
        # all that wait say since when, the client as well
        sql = "SELECT count(*) AS waits, count(since_us) AS dated FROM waits"
        [row] = json.loads(program.monarch("query", "-p", pid, "--json", sql).stdout)["rows"]
        assert row["waits"] == row["dated"] > 0
