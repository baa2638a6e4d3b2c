"""Syncs that break off: a host dies, its disk is full, files change meanwhile, a client is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import PATIENCE, wait_until
from helpers.workers import SECRET, workers
from monarch.actor import HostMesh, attach_to_workers
from monarch.errors import SyncError
from monarch.sync import SyncResult, push

pytestmark = pytest.mark.usefixtures("_process_test")

LARGE = 3 * push._PIECE  # bytes: it goes in pieces


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "large.bin").write_bytes(os.urandom(LARGE))
    (folder / "small.py").write_text("VALUE = 1\n")
    return folder


def sync(hosts: HostMesh, folder: Path) -> SyncResult:
    result = asyncio.run(hosts.sync_workspace(folder))
    assert isinstance(result, SyncResult)
    return result


def between_pieces(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen when the first piece of content is on its way."""
    pieces = push._Push._pieces

    def interrupted(self: Any, *args: Any) -> Iterator[Any]:
        for number, piece in enumerate(pieces(self, *args)):
            if number == 1:
                monkeypatch.undo()
                happens()
            yield piece

    monkeypatch.setattr(push._Push, "_pieces", interrupted)


def in_use(store: Path) -> set[str]:
    (current,) = store.glob("project-*/current")
    return {path.name for path in current.iterdir()}


def versions(store: Path) -> int:
    """How many are there, but for a spare one."""
    folders = [path for path in store.glob("project-*/versions/*") if path.is_dir()]
    return len([path for path in folders if not path.name.startswith("spare")])


def test_a_host_that_dies_in_the_middle_is_named_and_the_others_are_done(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workers(3, env={"MONARCH_SYNC_FOLDER": str(tmp_path / "store")}) as found:
        hosts = attach_to_workers(workers=found.addresses)
        hosts.initialized.get(timeout=PATIENCE)
        between_pieces(monkeypatch, lambda: found.kill_agent(1))
        with pytest.raises(SyncError) as raised:
            sync(hosts, project)
        error = raised.value
        assert list(error.failed) == [found.addresses[1]] and found.addresses[1] in str(error)
        assert (error.result.hosts, error.result.behind, error.result.sent_files) == (2, 3, 2)
        assert in_use(tmp_path / "store") == {"large.bin", "small.py"}
        others = hosts.select([0, 2])
        assert sync(others, project).behind == 0
        hosts.shutdown().get(timeout=PATIENCE)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(path)], capture_output=True
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_disk_that_is_full_is_said_and_the_workspace_stays_as_it_was(
    project: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = small_disk / "store"
    with workers(1, env={"MONARCH_SYNC_FOLDER": str(store)}) as found:
        hosts = attach_to_workers(workers=found.addresses)
        (project / "large.bin").rename(project.parent / "large.bin")
        sync(hosts, project)
        (project.parent / "large.bin").rename(project / "large.bin")
        (project / "larger.bin").write_bytes(os.urandom(LARGE))
        with pytest.raises(SyncError, match=r"no room for the workspace .*25\.2 MB are to come"):
            sync(hosts, project)
        assert (in_use(store), versions(store)) == ({"small.py"}, 1)
        (project / "larger.bin").unlink()
        filling = small_disk / "filling"
        between_pieces(monkeypatch, lambda: fill(filling))
        with pytest.raises(
            SyncError, match=r"no room for the workspace .*at large\.bin; the one in use stays"
        ):
            sync(hosts, project)
        assert (in_use(store), versions(store)) == ({"small.py"}, 1)
        filling.unlink()
        assert sync(hosts, project).sent == LARGE
        assert in_use(store) == {"large.bin", "small.py"}
        hosts.shutdown().get(timeout=PATIENCE)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return


def test_a_file_that_changes_while_it_is_sent_goes_as_it_is_then(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = os.urandom(LARGE)
    with workers(1, env={"MONARCH_SYNC_FOLDER": str(tmp_path / "store")}) as found:
        hosts = attach_to_workers(workers=found.addresses)
        between_pieces(monkeypatch, lambda: (project / "large.bin").write_bytes(new))
        assert sync(hosts, project).changing == [str(project / "large.bin")]
        (current,) = (tmp_path / "store").glob("project-*/current")
        assert (current / "large.bin").read_bytes() == new
        assert versions(tmp_path / "store") == 1
        hosts.shutdown().get(timeout=PATIENCE)


def test_files_that_never_stay_the_same_do_not_stop_the_rest(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces, offered = push._Push._pieces, []
    (project / "other.bin").write_bytes(os.urandom(LARGE))

    def disturbed(self: Any, digests: Any, sizes: Any) -> Iterator[Any]:
        offered.append(len(digests))
        for piece in pieces(self, digests, sizes):
            (project / "large.bin").write_bytes(os.urandom(LARGE))
            with (project / "small.py").open("a") as log:
                log.write("STEP = 1\n")
            yield piece

    with workers(1, env={"MONARCH_SYNC_FOLDER": str(tmp_path / "store")}) as found:
        hosts = attach_to_workers(workers=found.addresses)
        monkeypatch.setattr(push._Push, "_pieces", disturbed)
        result = sync(hosts, project)
        (current,) = (tmp_path / "store").glob("project-*/current")
        assert "large.bin" in str(result) and str(project / "large.bin") in result.changing
        assert offered[0] == 3 and sum(offered) <= 3 + 2 * (len(offered) - 1), (
            "what has arrived is not sent again"
        )
        assert len((current / "large.bin").read_bytes()) == LARGE
        assert (current / "other.bin").read_bytes() == (project / "other.bin").read_bytes()
        assert (current / "small.py").read_text().startswith("VALUE = 1\n")
        assert versions(tmp_path / "store") == 1
        hosts.shutdown().get(timeout=PATIENCE)


CLIENT = """
import asyncio, os, signal, sys
from monarch.actor import attach_to_workers
from monarch.sync import push

pieces = push._Push._pieces
def interrupted(self, *args):
    for number, piece in enumerate(pieces(self, *args)):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield piece
push._Push._pieces = interrupted
hosts = attach_to_workers(workers=[sys.argv[1]])
asyncio.run(hosts.sync_workspace(sys.argv[2]))
"""


def test_what_a_client_that_is_killed_has_begun_is_removed(project: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with workers(1, env={"MONARCH_SYNC_FOLDER": str(store)}) as found:
        hosts = attach_to_workers(workers=found.addresses)
        hosts.initialized.get(timeout=PATIENCE)
        env = {**os.environ, "MONARCH_SECRET": SECRET}
        command = ["-c", CLIENT, found.addresses[0], str(project)]
        client = subprocess.Popen([sys.executable, *command], env=env)
        assert client.wait(PATIENCE) == -signal.SIGKILL
        wait_until(
            lambda: list(store.glob("project-*")) and not versions(store),
            what="the version to be removed",
        )
        assert sync(hosts, project).sent_files == 2
        hosts.shutdown().get(timeout=PATIENCE)
