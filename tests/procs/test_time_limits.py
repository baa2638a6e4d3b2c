"""What a test tells that runs into its time limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HANGS = Path(__file__).with_name("time_limit.py")


def test_a_test_that_runs_into_its_time_limit_tells_where_the_ranks_are() -> None:
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", str(HANGS)]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=50
    )
    _, _, told = ended.stdout.partition("Stacks of all processes in call")
    assert "> hang_in_here" in told, ended
    assert "1 failed" in told, ended
