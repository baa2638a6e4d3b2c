"""Files of a remote mount that are open while it is refreshed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, endpoint, this_host
from monarch.mounts import Mount
from monarch.remotemount import remotemount

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.usefixtures("fuse"),
    pytest.mark.processes("the host agent mounts folders"),
]

OLD, NEW = b"old content" * 1000, b"new content" * 1000


class Reader(Actor):
    """Reads in the kernel's pages, without a buffer of its own."""

    @endpoint
    def open(self, path: str) -> bytes:
        self.fd = os.open(path, os.O_RDONLY)
        return os.pread(self.fd, len(NEW) * 2, 0)

    @endpoint
    def read(self) -> bytes | int:
        try:
            return os.pread(self.fd, len(NEW) * 2, 0)
        except OSError as error:
            return error.errno or 0

    @endpoint
    def close(self) -> None:
        os.close(self.fd)


@pytest.fixture
def shown(spawn: Spawn, tmp_path: Path) -> Iterator[tuple[Path, str, Mount, Any]]:
    """A file, its path in a mount, the mount, and an actor that may read it there."""
    folder, point = tmp_path / "folder", tmp_path / "point"
    folder.mkdir()
    file = folder / "file"
    file.write_bytes(OLD)
    with remotemount(this_host(), folder, point) as mount:
        reader = spawn(1).spawn("reader", Reader)
        assert reader.open.call_one(f"{point}/file").get() == OLD
        yield file, f"{point}/file", mount, reader
        reader.close.call_one().get()


def _replace(file: Path) -> None:
    (file.parent / "other").write_bytes(NEW)
    os.replace(file.parent / "other", file)


@pytest.mark.parametrize("change", [_replace, lambda file: file.write_bytes(NEW)])
def test_a_file_that_has_changed_is_an_error_once_the_mount_is_refreshed(
    shown: tuple[Path, str, Mount, Any], spawn: Spawn, change: Callable[[Path], object]
) -> None:
    file, path, mount, reader = shown
    change(file)
    assert reader.read.call_one().get() == OLD  # it is seen from the next refresh on
    mount.refresh()
    assert reader.read.call_one().get() == errno.EIO
    other = spawn(1).spawn("other", Reader)
    assert other.open.call_one(path).get() == NEW
    assert reader.read.call_one().get() == errno.EIO  # what others read is not for it, either
    assert other.read.call_one().get() == NEW
    mount.refresh()
    assert other.read.call_one().get() == NEW
    other.close.call_one().get()
    reader.close.call_one().get()
    assert reader.open.call_one(path).get() == NEW


def test_a_file_that_is_gone_is_an_error_once_the_mount_is_refreshed(
    shown: tuple[Path, str, Mount, Any],
) -> None:
    file, _, mount, reader = shown
    file.unlink()
    mount.refresh()
    assert reader.read.call_one().get() in (errno.ENOENT, errno.EIO)  # the kernel may ask first


def test_a_file_that_is_the_same_or_has_only_grown_is_read_on_after_a_refresh(
    shown: tuple[Path, str, Mount, Any],
) -> None:
    file, _, mount, reader = shown
    mount.refresh()
    assert reader.read.call_one().get() == OLD
    with file.open("ab") as end:
        end.write(NEW)
    mount.refresh()
    assert reader.read.call_one().get() == OLD  # as long as it was when it was opened
