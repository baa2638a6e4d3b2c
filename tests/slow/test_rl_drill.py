"""The drill of the example of reinforcement learning: each role is killed, and all steps are done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.processes("a program of its own, with groups of torch")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_all_steps_are_done_and_no_group_twice_whatever_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.rl", "--drill"],
        cwd=ROOT,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 60 steps done, 960 groups used, none of them twice" in done.stdout
