"""Checkpoints beside training, in the format of `torch.distributed.checkpoint`.

Here is what a rank writes, and when a checkpoint counts as complete.

Each rank writes its part into a folder with a dot in front. The coordinator adds the table of
contents once it has heard of all parts, and renames the folder: ``step-00000100``. So a folder of
that name is whole, even if ranks died meanwhile.

torch's own `save` would have the ranks agree by collectives, and unpickle what comes over the ports
of gloo. Here what they have to say to each other goes to the coordinator, by calls.

A checkpoint is a pickle: who has made it has code run. Other users may be able to write the
folder: what they, or links, have put there counts for nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .._lazy import counted_logger
from .._ours import Folder
from ..errors import ElasticError
from ..rdma.states.distributed import is_distributed
from .state import Empty, Keys, Whole, load_state_dicts, replaced, state_dicts

_FORMAT = "torch.distributed.checkpoint"  # imported by those who write
_NAME = "step-"
_LOCK = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OUTLINE = "outline"  # all values that are no tensors, and where tensors belong
# else torch makes text of the numbers in keys
_AS_IT_IS: Any = {"flatten_state_dict": False, "flatten_sharded_tensors": False}

logger = counted_logger(__name__)


class CheckpointPart(NamedTuple):
    """The part of a checkpoint that a rank has written.

    Attributes:
        plan: Which tensors and values, and where they belong.
        written: Where they are in its file.
    """

    plan: Any
    written: Sequence[Any]


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make the folder, and lock it against other writers until the block or this process ends.

    Raises:
        ElasticError: Another program does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(os.open(folder / ".lock", _LOCK, 0o666), "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ElasticError(
                f"checkpoint={str(folder)!r}: another program that still runs writes its checkpoints"
                " there; expected a folder of this program's own"
            ) from None
        except OSError:  # the file system has no locks
            pass
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # also for processes that were forked meanwhile


def unfinished(folder: Path, step: int, world: int) -> Path:
    """The folder of the parts that ranks of a world have written before a step."""
    return folder / f".{_NAME}{step}-{world}"


def newest(folder: Path) -> tuple[int, str | None]:
    """The last whole checkpoint: before which step, and its folder; 0 and None if there is none."""
    whole = _whole(folder)
    return (_step(whole[-1]), str(whole[-1])) if whole else (0, None)


def snapshot(state: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """A copy of what a rank is to write of a state, by name; the rest is not copied."""
    found: dict[str, Any] = {}

    def keep(keys: Keys, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        found[_name(keys)] = value.detach().to("cpu", copy=True) if _writes(value, rank) else value
        return Whole(tuple(value.shape), value.dtype)

    found[_OUTLINE] = replaced(state_dicts(state), keep)
    return found


def write(snapshot: dict[str, Any], folder: Path, rank: int) -> CheckpointPart:
    """Write a rank's part, to the disk.

    Raises:
        PermissionError: Another user has made the folder.
    """
    folder.mkdir(0o755, exist_ok=True)
    with _opened(folder):
        dcp: Any = import_module(_FORMAT)
    planner = dcp.DefaultSavePlanner(**_AS_IT_IS)
    planner.set_up_planner(snapshot, is_coordinator=rank == 0)
    plan = planner.create_local_plan()
    mine = [item for item in plan.items if _writes(planner.state_dict[item.index.fqn], rank)]
    writer = dcp.FileSystemWriter(folder)
    # a file name of its own for each rank
    writer.set_up_storage_writer(rank == 0, rank=rank, use_collectives=False)
    plan = writer.prepare_local_plan(replace(plan, items=mine))
    return CheckpointPart(plan, writer.write_data(plan, planner).wait())


def commit(folder: Path, step: int, world: int, parts: Sequence[CheckpointPart], keep: int) -> None:
    """Make a checkpoint of its parts, which are all written, and remove those that are too old."""
    dcp: Any = import_module(_FORMAT)
    part = unfinished(folder, step, world)
    for each in (each for its in parts for each in its.written):
        if not (part / each.storage_data.relative_path).exists():
            raise FileNotFoundError(
                f"{part} lacks {each.storage_data.relative_path}: do all hosts share this folder?"
            )
    _, metadata = dcp.DefaultSavePlanner(**_AS_IT_IS).create_global_plan(
        [part.plan for part in parts]
    )
    writer = dcp.FileSystemWriter(part)
    writer.set_up_storage_writer(True)
    writer.finish(metadata, [list(part.written) for part in parts])
    final = folder / f"{_NAME}{step:08}"
    if final not in _whole(folder):  # steps may have been done again
        part.rename(final)
    for old in _whole(folder)[:-keep]:
        shutil.rmtree(old.rename(old.with_name(f".{old.name}")))
    clear(folder, step)


def clear(folder: Path, step: float) -> None:
    """Remove unfinished checkpoints of steps below this one."""
    for path in folder.glob(f".{_NAME}*"):
        begun = path.name.removeprefix(f".{_NAME}").partition("-")[0]
        if begun.isdecimal() and int(begun) < step:
            shutil.rmtree(path, ignore_errors=True)


def load(path: str, state: Mapping[str, Any]) -> None:
    """Make a state that of a checkpoint, each rank its own shards.

    It is changed once all of it is here.

    Raises:
        ValueError: A file is missing or broken.
    """
    table: dict[str, Any] = {_OUTLINE: None}
    empty = Empty(state)
    tensors: dict[str, Any] = {}

    def make(keys: Keys, value: Any) -> Any:
        if isinstance(value, Whole):
            return tensors.setdefault(_name(keys), empty.tensor(keys, value))
        return value

    try:
        with _opened(Path(path)) as own:
            _read(own.way, table)
            found = replaced(table[_OUTLINE], make)
            _read(own.way, tensors)
    except Exception as error:
        raise ValueError(f"the checkpoint {path} can't be read: {error}") from error
    load_state_dicts(state, found)


def _read(path: str, into: dict[str, Any]) -> None:
    """Fill these tensors and values: what torch's `load` does, without a word to other ranks."""
    dcp: Any = import_module(_FORMAT)
    reader, planner = dcp.FileSystemReader(path), dcp.DefaultLoadPlanner(**_AS_IT_IS)
    metadata = reader.read_metadata()
    planner.set_up_planner(into, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    reader.read_data(reader.prepare_local_plan(planner.create_local_plan()), planner).wait()


def _name(keys: Keys) -> str:
    """As torch names it in a checkpoint."""
    return ".".join(map(str, keys))


def _writes(value: Any, rank: int) -> bool:
    """Write each part once.

    A shard that several ranks have is written by the first of them, everything else by rank 0.
    """
    if not is_distributed(value):
        return rank == 0
    coordinates = zip(value.device_mesh.get_coordinate(), value.placements, strict=True)
    return all(index == 0 for index, placement in coordinates if placement.is_replicate()) and bool(
        value.to_local().numel()
    )


def _whole(folder: Path) -> list[Path]:
    found = folder.glob(f"{_NAME}*")
    named = (path for path in found if path.name.removeprefix(_NAME).isdecimal())
    return sorted(filter(_is_ours, named), key=_step)


def _is_ours(path: Path) -> bool:
    try:
        with _opened(path):
            return True
    except OSError as error:
        logger.warning("%s is left out: %s", path, error)
        return False


def _opened(path: Path) -> Folder:
    """Open a folder in that of the checkpoints.

    On some file systems all files are one user's: the one to whom the folder around it belongs.

    Raises:
        OSError: Another user has made it, or it is a link, or no folder.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    users = os.geteuid(), 0, path.parent.stat().st_uid
    folder = Folder(str(path), os.open(path, flags))
    if (owner := os.fstat(folder.fd).st_uid) not in users:
        with folder:
            raise PermissionError(f"user {owner} has made it, and a checkpoint can have code run")
    return folder


def _step(path: Path) -> int:
    return int(path.name.removeprefix(_NAME))
