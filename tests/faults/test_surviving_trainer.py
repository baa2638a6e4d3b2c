"""The example that trains with `DistributedDataParallel` and loses a rank in a backward pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.scripts import run_script

pytest.importorskip("torch")
pytestmark = pytest.mark.processes("a program of its own, with groups of torch")
EXAMPLE = Path(__file__).parents[2] / "examples/surviving_trainer.py"


@pytest.mark.slow
def test_training_goes_on_after_a_death_in_a_backward_pass_that_is_named(tmp_path: Path) -> None:
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}  # which it makes and leaves
    result = run_script(EXAMPLE.read_text(), env=env)
    assert (result.exit_code, result.stderr, result.left_behind) == (0, "", []), str(result)
    said = result.stdout.splitlines()
    at = said.index("step 13: gpus[2] was killed")
    assert said[at + 1] == "step 10: all trainers are in the group"
    assert said[-1] == "all 20 steps done, [10, 11, 12] twice; incarnations [1, 1, 1, 1]"
