"""Workspaces of many files, and of large ones, at a part of the size that they may have;
`MONARCH_FULL_SIZE=1` is all of it.

Memory is what such a sync must not take: neither side ever has a file, or what all of them have in
them, in memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.workers import Cluster, attached_cluster
from monarch.sync import SyncResult

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("_process_test")]

_FULL = bool(os.environ.get("MONARCH_FULL_SIZE"))
FILES = 100_000 if _FULL else 10_000
BYTES = 5 << 30 if _FULL else 200 << 20
MEMORY = 64 << 20  # bytes that the sync of one large file may add
FOR_A_FILE = (
    # bytes that a file of a workspace may cost a process: its name, status and digest in several
    # versions
    4000
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with attached_cluster(
        1, env={"MONARCH_SYNC_FOLDER": str(tmp_path_factory.mktemp("store"))}
    ) as found:
        yield found


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Memory:
    """The most that a process has had since this was made, beyond what it had then, in bytes."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # forget the peak
        self._before = self._of("VmRSS")

    def _of(self, what: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))

    @property
    def peak(self) -> int:
        return self._of("VmHWM") - self._before


def sync(cluster: Cluster, folder: Path) -> SyncResult:
    result = asyncio.run(cluster.hosts.sync_workspace(folder))
    assert isinstance(result, SyncResult)
    return result


def test_a_large_file_is_in_the_memory_of_neither_side(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    with open(folder / "large.bin", "wb") as file:
        file.truncate(BYTES)  # most of it is a hole, which is read as zeros
        file.seek(BYTES // 2)
        file.write(os.urandom(1 << 20))
    sides = [Memory(os.getpid()), Memory(cluster.workers.agent(0))]
    result = sync(cluster, folder)
    assert (result.sent_files, result.sent) == (1, BYTES)
    assert max(side.peak for side in sides) < MEMORY < BYTES // 2
    (folder / "small").write_text("x")
    assert sync(cluster, folder).sent == 1
    assert max(side.peak for side in sides) < MEMORY


def test_many_files_take_memory_for_their_names_and_a_change_of_one_is_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    for index in range(FILES):
        if index % 100 == 0:
            below = folder / f"part{index // 100}"
            below.mkdir(parents=True)
        (below / f"file{index}.txt").write_bytes(index.to_bytes(4, "big") * (index % 5))
    sides = [Memory(os.getpid()), Memory(cluster.workers.agent(0))]
    result = sync(cluster, folder)
    assert (result.files, result.behind) == (FILES, 1)
    assert result.sent_files == FILES - FILES // 5, "those without content go as their names"
    assert sync(cluster, folder).behind == 0
    for text in ("one", "two", "three"):
        (folder / "part7" / "file701.txt").write_text(text)
        result = sync(cluster, folder)
        assert (result.behind, result.sent_files, result.sent) == (1, 1, len(text))
    assert max(side.peak for side in sides) < FOR_A_FILE * FILES
