"""`monarch.elastic.checkpoint`: what is written comes back, and what was only begun does not
count.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the format is that of torch")

import torch
import torch.distributed.checkpoint as dcp

from helpers.strangers import given_to_stranger, needs_another_user
from monarch.elastic import checkpoint


def trained(steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    return {"model": model, "optimizer": optimizer}


def write(
    folder: Path, step: int, steps: int = 1, world: int = 1
) -> list[checkpoint.CheckpointPart]:
    part = checkpoint.unfinished(folder, step, world)
    return [
        checkpoint.write(checkpoint.snapshot(trained(steps), rank), part, rank) for rank in range(2)
    ]


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoint.commit(tmp_path, 3, 1, write(tmp_path, 3, steps=3), keep=2)
    step, path = checkpoint.newest(tmp_path)
    assert step == 3
    assert path is not None
    state, expected = trained(0), trained(3)
    checkpoint.load(path, state)
    assert torch.equal(state["model"].weight, expected["model"].weight)
    moments = [
        each["optimizer"].state_dict()["state"][1]["exp_avg_sq"] for each in (state, expected)
    ]
    assert torch.equal(*moments)
    assert state["optimizer"].param_groups[0]["lr"] == expected["optimizer"].param_groups[0]["lr"]
    weight = {"model.weight": torch.empty(2, 3)}  # by torch's own means, too
    with pytest.warns(UserWarning, match="single process"):
        # torch's `__init__` has no `__all__`
        dcp.load(weight, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    assert torch.equal(weight["model.weight"], expected["model"].weight)


def test_a_checkpoint_that_was_only_begun_does_not_count_and_goes_with_the_next(
    tmp_path: Path,
) -> None:
    checkpoint.commit(tmp_path, 3, 1, write(tmp_path, 3), keep=2)
    write(tmp_path, 6)
    assert checkpoint.newest(tmp_path)[0] == 3
    assert len(list(tmp_path.iterdir())) == 2
    checkpoint.commit(tmp_path, 9, 2, write(tmp_path, 9, world=2), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000009"]


def test_the_last_ones_are_kept_and_one_that_is_done_again_is_not_a_second_one(
    tmp_path: Path,
) -> None:
    for step, world in ((3, 1), (6, 1), (6, 2), (100000000, 2)):
        checkpoint.commit(tmp_path, step, world, write(tmp_path, step, world=world), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000006", "step-100000000"]
    assert checkpoint.newest(tmp_path)[0] == 100000000
    checkpoint.clear(tmp_path, float("inf"))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_checkpoint_that_lacks_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    checkpoint.commit(tmp_path, 3, 1, write(tmp_path, 3), keep=2)
    path = checkpoint.newest(tmp_path)[1]
    assert path is not None
    next(Path(path).glob("*.distcp")).unlink()
    with pytest.raises(ValueError, match="step-00000003 can't be read"):
        checkpoint.load(path, trained(0))


def test_a_part_that_is_not_in_the_folder_of_the_program_makes_no_checkpoint(
    tmp_path: Path,
) -> None:
    parts = write(tmp_path, 3)
    # as on a host with a disk of its own
    next(checkpoint.unfinished(tmp_path, 3, 1).glob("*.distcp")).unlink()
    with pytest.raises(FileNotFoundError, match="do all hosts share this folder"):
        checkpoint.commit(tmp_path, 3, 1, parts, keep=2)
    assert checkpoint.newest(tmp_path) == (0, None)


def test_what_others_have_put_into_the_folder_is_left_alone(tmp_path: Path) -> None:
    for name in ("step-best", "step-00000003.old", ".step-by-step"):
        (tmp_path / name).mkdir()
    checkpoint.clear(tmp_path, float("inf"))
    assert checkpoint.newest(tmp_path) == (0, None)
    checkpoint.commit(tmp_path, 3, 1, write(tmp_path, 3), keep=1)
    assert checkpoint.newest(tmp_path)[0] == 3
    assert len(list(tmp_path.iterdir())) == 4


class Owned:
    """Leaves a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@needs_another_user
@pytest.mark.parametrize("planted", ["folder", "link", "file"])
def test_a_checkpoint_of_another_user_is_neither_read_nor_counted_nor_removed(
    planted: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owned, folder = tmp_path / "owned", tmp_path / "checkpoints"
    theirs = folder / "step-99999999"
    folder.mkdir()
    evil = theirs if planted == "folder" else tmp_path / "evil"
    evil.mkdir()
    given_to_stranger(evil)
    (evil / ".metadata").write_bytes(pickle.dumps(Owned(owned)))
    if planted == "link":
        theirs.symlink_to(evil)
    elif planted == "file":
        theirs.touch()
    assert checkpoint.newest(folder) == (0, None)
    for step in (3, 4):
        checkpoint.commit(folder, step, 1, write(folder, step), keep=1)
        assert checkpoint.newest(folder)[0] == step
    assert [path.name for path in sorted(folder.iterdir())] == ["step-00000004", "step-99999999"]
    assert f"{theirs} is left out" in caplog.text
    with pytest.raises(ValueError, match="can't be read"):
        checkpoint.load(str(theirs), trained(0))
    assert not owned.exists()


@needs_another_user
def test_no_part_is_written_where_another_user_leads(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    checkpoint.unfinished(tmp_path, 3, 1).symlink_to(tmp_path / "elsewhere")
    checkpoint.unfinished(tmp_path, 4, 1).mkdir()
    given_to_stranger(checkpoint.unfinished(tmp_path, 4, 1))
    for step in (3, 4):
        with pytest.raises(OSError, match=r"\.step-3-1|user 65534 has made it"):
            write(tmp_path, step)
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_lock_is_no_link_and_no_pipe_that_is_waited_for(planted: str, tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    if planted == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match=r"\.lock"), checkpoint.claimed(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == [lock]
