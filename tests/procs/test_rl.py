"""The example of asynchronous reinforcement learning: it runs, goes on from a checkpoint to the same
curve, and its sandbox keeps its limits.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from monarch.elastic import StateFollower

pytestmark = [
    pytest.mark.processes("a program of its own, with groups of torch"),
    pytest.mark.torch,
]
ROOT = Path(__file__).parents[2]


def _run(folder: Path, *options: str) -> dict[int, int]:
    """Run it; the rewards of its steps, in percent."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.rl", *options],
        cwd=ROOT,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    found = re.findall(r"^ *(\d+) +(\d+)% +[\d.]+ +[\d.]+ s", done.stdout, re.MULTILINE)
    return {int(step): int(reward) for step, reward in found}


def test_the_job_runs_with_sharded_trainers(tmp_path: Path) -> None:
    assert list(_run(tmp_path, "--steps", "few", "--imitation", "5", "--fsdp")) == [0, 1, 2, 3]


def test_a_generator_that_hears_no_more_of_new_weights_fails_its_requests() -> None:
    from examples.rl.generator import Generator

    class Deaf(StateFollower):
        async def pull(self) -> bool:
            raise OSError("no board")

    async def run() -> None:
        generator, board = Generator.__new__(Generator), None
        generator.follower = Deaf(board, {})  # type: ignore[arg-type]
        generator.free, generator.work = [], None
        generator.waiting, generator.running = [], []
        generate: Any = generator.generate
        for _ in range(2):  # who asks, and who asks later
            with pytest.raises(OSError, match="no board"):
                await generate(b"", [0], 0)

    asyncio.run(run())


def test_all_roles_go_on_from_a_checkpoint_to_the_same_curve(tmp_path: Path) -> None:
    # In lockstep nothing depends on which of two is faster.
    folder = str(tmp_path / "checkpoint")
    options = ("--max-age", "0", "--checkpoint", folder, "--checkpoint-every", "3")
    more = ("--imitation", "40", "--steps", "5")
    whole = _run(tmp_path, *options, *more)
    assert list(whole) == [0, 1, 2, 3, 4]
    again = _run(tmp_path, *options, *more)
    assert list(again) == [3, 4]
    for step, reward in again.items():
        # a last bit that depends on what is computed together may change an answer
        assert abs(reward - whole[step]) <= 1
