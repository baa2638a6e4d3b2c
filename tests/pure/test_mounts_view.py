"""What is below FUSE: the files of a folder, and how they are seen from elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monarch._core.plane import Promise, completed
from monarch.actor import Future
from monarch.errors import MountError
from monarch.mounts import table, view
from monarch.mounts.folder import Folder
from monarch.mounts.source import tried
from monarch.mounts.tree import Tree
from monarch.mounts.view import BLOCK, View


class Asked:
    """The other side of a view, in this process; `questions` have been asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(str(folder))
        self.questions: list[tuple[Any, ...]] = []

    def __call__(self, what: str, *args: Any) -> Future[Any]:
        self.questions.append((what, *args))
        return completed(tried(getattr(self.folder, what), *args))


def refused(function: Callable[..., object], *args: Any) -> int | None:
    with pytest.raises(OSError) as caught:
        function(*args)
    return caught.value.errno


def test_nothing_outside_of_a_folder_is_read_by_way_of_its_symlinks(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    (shown / "real").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (shown / "file").symlink_to("../secret")
    (shown / "folder").symlink_to("..")
    (shown / "inside").symlink_to("real")
    os.mkfifo(shown / "pipe")
    folder = Folder(str(shown))
    assert folder.link("file") == "../secret" and folder.link("folder") == ".."
    assert refused(folder.read, "file", 0, 10) == errno.ELOOP
    assert refused(folder.read, "pipe", 0, 10) == errno.EINVAL
    for path in ("folder/secret", "inside/x"):
        assert refused(folder.stat, path) == errno.ENOTDIR
    for path in ("..", "../secret", "real/../../secret", "/etc/passwd", "real//x"):
        assert refused(folder.stat, path) == errno.ENOENT
    assert refused(folder.list, "folder") == errno.ENOTDIR
    assert set(folder.list("")) == {"real", "file", "folder", "inside", "pipe"}


def test_hidden_names_are_there_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a" / ".monarch").mkdir(parents=True)
    folder = Folder(str(tmp_path), [".monarch"])
    assert folder.list("a") == {} and refused(folder.stat, "a/.monarch") == errno.ENOENT


def test_a_kept_view_asks_once_for_a_folder_and_never_for_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    asked = Asked(tmp_path)
    kept = View(asked, live=False)
    assert kept.stat("a").size == 1
    for absent in ("b", "c"):
        assert refused(kept.stat, absent) == errno.ENOENT
    assert asked.questions == [("list", "")]
    (tmp_path / "b").write_text("22")
    assert refused(kept.stat, "b") == errno.ENOENT
    kept.forget()
    assert kept.stat("b").size == 2 and len(asked.questions) == 2


def test_a_live_view_follows_a_file_that_grows_once_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a")
    live = View(Asked(tmp_path), live=True)
    file = live.open("log")
    assert file.read(0, 100) == b"a"
    data = os.urandom(3 * BLOCK)
    with path.open("ab") as end:
        end.write(data)
    live.forget({"": {"log"}})
    assert live.stat("log").size == len(data) + 1
    assert file.read(BLOCK - 5, 10) == (b"a" + data)[BLOCK - 5 : BLOCK + 5]
    assert file.read(len(data), 100) == data[-1:] and file.read(len(data) + 1, 100) == b""


@pytest.mark.parametrize("live", [True, False])
def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path, live: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * BLOCK))
    seen = View(Asked(tmp_path), live)
    file = seen.open("file")
    (tmp_path / "new").write_bytes(bytes(4 * BLOCK))
    os.replace(tmp_path / "new", path)
    seen.forget({"": {"file"}})
    assert refused(file.read, 2 * BLOCK, 10) == errno.EIO


@pytest.mark.parametrize("change", ["grown", "rewritten"])
def test_content_that_is_not_what_was_opened_is_an_error_and_growth_is_none(tmp_path: Path, change: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * BLOCK))
    file = View(Asked(tmp_path), live=False).open("file")
    with path.open("ab" if change == "grown" else "r+b") as changed:
        changed.write(b"more")
    os.utime(path, (1, 1))
    if change == "grown":
        assert file.read(3 * BLOCK - 2, 10) == b"\0\0"
    else:
        assert refused(file.read, 2 * BLOCK, 2) == errno.EIO


def test_a_file_that_was_edited_since_it_was_listed_is_opened_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    kept = View(Asked(tmp_path), live=False)
    assert kept.open("file").read(0, 10) == b"old"
    path.write_text("edited")
    monkeypatch.setattr(view, "_LIFE", 0.0)
    assert refused(kept.open, "file") == errno.ESTALE  # at which the kernel looks at it again, and opens it again
    monkeypatch.undo()
    assert kept.open("file").read(0, 10) == b"edited"


def test_who_does_not_answer_is_an_error_within_its_bound_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PATIENCE", 0.01)
    (tmp_path / "file").write_text("text")
    asked = Asked(tmp_path)
    silent: Promise[Any] = Promise("an answer")
    hangs = True
    seen = View(lambda *question: silent.future if hangs else asked(*question), live=True)
    for function in (seen.stat, seen.names, seen.link, seen.open):
        assert refused(function, "file") == errno.EIO
    hangs = False
    file = seen.open("file")
    assert file.read(0, 10) == b"text"


def test_blocks_are_fetched_ahead_of_who_reads_in_order(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(40 * BLOCK))
    asked = Asked(tmp_path)
    file = View(asked, live=False).open("file")
    for index in range(4):
        file.read(index * BLOCK, 1)
    fetched = [offset // BLOCK for what, *args in asked.questions if what == "read" for offset in args[1:2]]
    assert fetched == list(range(4 + 8))
    file.read(30 * BLOCK, 1)  # somebody jumps
    assert len(asked.questions) == 1 + len(fetched) + 2


def test_views_are_folders_of_a_tree_which_are_there_whatever_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    gone = View(lambda *_: completed(errno.EIO), live=True)
    tree = Tree({"a/x": View(Asked(tmp_path), live=True), "a/y": gone})
    assert {name for name, _ in tree.list("")} == {"a"} and {name for name, _ in tree.list("a")} == {"x", "y"}
    assert tree.open("a/x/file").read(0, 9) == b"text"
    assert tree.stat("a/y") == tree.stat("a") == tree.stat("")
    assert refused(tree.list, "a/y") == errno.EIO
    assert refused(tree.stat, "b") == refused(tree.stat, "a/z/w") == errno.ENOENT


def test_without_fuse_the_error_names_what_is_missing_and_proposes_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MountError, match=r"fusermount3 is missing.*job\.sync\(\)"):
        table.check_fuse()
