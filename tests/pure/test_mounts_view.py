"""What is below FUSE: the files of a folder, and how they are seen from elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.plane import Promise, completed
from monarch.actor import Future
from monarch.errors import MountError
from monarch.mounts import table, view
from monarch.mounts.blocks import BLOCK
from monarch.mounts.folder import Folder
from monarch.mounts.source import tried
from monarch.mounts.tree import Tree
from monarch.mounts.view import OpenFile, View


class Asked:
    """The other side of a view, in this process; `questions` have been asked, `sent` bytes of content came."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(str(folder))
        self.questions: list[tuple[Any, ...]] = []
        self.sent = 0

    def __call__(self, what: str, *args: Any) -> Future[Any]:
        self.questions.append((what, *args))
        answer = tried(getattr(self.folder, what), *args)
        self.sent += len(answer[2]) if what == "read" and not isinstance(answer, int) else 0
        return completed(answer)


def read(file: OpenFile, offset: int, size: int) -> bytes:
    return b"".join(file.read(offset, size))


def refused(function: Callable[..., object], *args: Any) -> int | None:
    with pytest.raises(OSError) as caught:
        function(*args)
    return caught.value.errno


def operations_of(seen: View, live: bool) -> Any:
    """What answers the kernel, which is played here."""
    try:
        from monarch.mounts.fuse import Operations
    except (ImportError, OSError) as error:
        pytest.skip(f"libfuse is missing: {error}")
    return Operations(Tree({"": seen}), 1, threading.Event(), live)


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
    assert asked.questions == [("tree", "")]
    (tmp_path / "b").write_text("22")
    assert refused(kept.stat, "b") == errno.ENOENT
    kept.forget()
    assert kept.stat("b").size == 2 and len(asked.questions) == 2


def test_an_import_asks_once_for_names_and_once_for_compiled_modules(tmp_path: Path) -> None:
    compiled = tmp_path / "package" / "sub" / "__pycache__"
    compiled.mkdir(parents=True)
    (tmp_path / "link").symlink_to("package")
    for module in ("a", "b"):
        (tmp_path / "package" / "sub" / f"{module}.py").write_text("")
        (compiled / f"{module}.pyc").write_text(module)
    (compiled / "large.pyc").write_bytes(bytes(3 << 20))
    asked = Asked(tmp_path)
    kept = View(asked, live=False)
    assert stat.S_ISDIR(kept.stat("package").mode) and stat.S_ISLNK(kept.stat("link").mode)
    for module in ("a", "b", "a"):
        assert kept.stat(f"package/sub/{module}.py").size == 0
        assert read(kept.open(f"package/sub/__pycache__/{module}.pyc"), 0, 9) == module.encode()
    assert asked.questions == [("tree", ""), ("tree", "package/sub/__pycache__")]
    assert sum(map(len, kept.open("package/sub/__pycache__/large.pyc").read(0, 1 << 30))) == 3 << 20
    (compiled / "a.pyc").write_text("edited")
    kept.forget()
    assert read(kept.open("package/sub/__pycache__/a.pyc"), 0, 9) == b"edited"


def test_a_live_view_follows_a_file_that_grows_once_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a")
    live = View(Asked(tmp_path), live=True)
    file = live.open("log")
    assert read(file, 0, 100) == b"a"
    data = os.urandom(3 * BLOCK)
    with path.open("ab") as end:
        end.write(data)
    live.forget({"": {"log"}})
    assert live.stat("log").size == len(data) + 1
    assert read(file, BLOCK - 5, 10) == (b"a" + data)[BLOCK - 5 : BLOCK + 5]
    assert read(file, len(data), 100) == data[-1:] and read(file, len(data) + 1, 100) == b""


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
        assert read(file, 3 * BLOCK - 2, 10) == b"\0\0"
    else:
        assert refused(file.read, 2 * BLOCK, 2) == errno.EIO


def test_a_file_that_was_edited_since_it_was_listed_is_opened_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    kept = View(Asked(tmp_path), live=False)
    assert read(kept.open("file"), 0, 10) == b"old"
    path.write_text("edited")
    monkeypatch.setattr(view, "_LIFE", 0.0)
    assert refused(kept.open, "file") == errno.ESTALE  # at which the kernel looks at it again, and opens it again
    monkeypatch.undo()
    assert read(kept.open("file"), 0, 10) == b"edited"


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
    assert read(file, 0, 10) == b"text"


@pytest.mark.parametrize("live", [True, False])
def test_the_kernel_is_told_no_end_of_file_that_is_not_of_the_one_open(tmp_path: Path, live: bool) -> None:
    operations = operations_of(View(Asked(tmp_path), live), live)
    (tmp_path / "file").write_bytes(bytes(3 * BLOCK))
    assert operations.getattr("/file")["st_size"] == 3 * BLOCK
    reader, late = SimpleNamespace(), SimpleNamespace()
    operations.open("/file", reader)
    assert not reader.direct_io
    (tmp_path / "new").write_bytes(b"new")
    os.replace(tmp_path / "new", tmp_path / "file")
    operations._tree.views[""].forget()
    assert {operations.getattr("/file", fh)["st_size"] for fh in (None, reader.fh)} == {3 * BLOCK}
    assert refused(operations.read, "/file", BLOCK, BLOCK, reader) == errno.EIO
    operations.open("/file", late)
    assert late.direct_io and b"".join(operations.read("/file", BLOCK, 0, late)) == b"new"
    operations.release("/file", reader)
    assert operations.getattr("/file")["st_size"] == 3


def test_a_live_file_that_is_truncated_is_shown_as_short_as_it_is(tmp_path: Path) -> None:
    operations = operations_of(View(Asked(tmp_path), live=True), live=True)
    (tmp_path / "file").write_bytes(bytes(3 * BLOCK))
    operations.getattr("/file")
    operations.open("/file", SimpleNamespace())
    os.truncate(tmp_path / "file", 5)
    operations._tree.views[""].forget()
    assert operations.getattr("/file")["st_size"] == 5


def test_blocks_are_fetched_ahead_of_who_reads_in_order(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(40 * BLOCK))
    asked = Asked(tmp_path)
    file = View(asked, live=False).open("file")

    def fetched() -> list[int]:
        runs = [
            range(args[1] // BLOCK, (args[1] + args[2]) // BLOCK) for what, *args in asked.questions if what == "read"
        ]
        return [index for run in runs for index in run]

    for index in (0, 1, 3, 2):  # as the kernel asks for several at once, in any order
        read(file, index * BLOCK, 1)
    assert fetched() == list(range(4 + 8))
    for index in range(4, 8):
        read(file, index * BLOCK, 1)
    assert fetched() == list(range(8 + 8)) and asked.questions[-1][2:] == (
        12 * BLOCK,
        4 * BLOCK,
    )  # several in one answer
    read(file, 30 * BLOCK, 1)  # somebody jumps
    assert fetched()[16:] == [30, 31]


@pytest.mark.parametrize("change", ["larger", "same size and time", "same size"])
def test_a_kept_file_that_is_rewritten_in_place_is_an_error_for_who_has_it_open(tmp_path: Path, change: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 30 * BLOCK)
    before = path.stat()
    kept = View(Asked(tmp_path), live=False)
    file = kept.open("file")
    assert read(file, 0, 3) == b"aaa"
    path.write_bytes(b"b" * (31 if change == "larger" else 30) * BLOCK)
    if change == "same size and time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert refused(file.read, 20 * BLOCK, 3) == errno.EIO
    assert refused(file.read, 20 * BLOCK, 3) == errno.EIO
    assert read(kept.open("file"), 20 * BLOCK, 3) == b"bbb"


def test_a_kept_file_that_gets_another_name_meanwhile_is_still_the_same(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(30 * BLOCK))
    file = View(Asked(tmp_path), live=False, kept=16).open("file")
    content = read(file, 0, 12 * BLOCK)
    (tmp_path / "other").hardlink_to(path)
    assert content + read(file, 12 * BLOCK, 18 * BLOCK) == path.read_bytes()


def test_of_a_file_that_grows_only_what_is_new_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(BLOCK // 2))
    asked = Asked(tmp_path)
    live = View(asked, live=True)
    file = live.open("log")
    seen = read(file, 0, BLOCK)
    asked.sent = 0
    for size in (1, 100, BLOCK):
        with path.open("ab") as end:
            end.write(os.urandom(size))
        live.forget({"": {"log"}})
        while part := read(file, len(seen), 4096):
            seen += part
    assert seen == path.read_bytes()
    assert asked.sent == 101 + BLOCK
    with path.open("r+b") as again:
        again.write(b"rewritten")
    live.forget({"": {"log"}})
    assert read(file, 0, 9) == b"rewritten"


def test_of_a_folder_that_is_silent_a_few_are_waited_for_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MOST_PATIENT", 3)
    monkeypatch.setattr(view, "SILENCE", 0.05)
    silent: Promise[Any] = Promise("an answer")
    seen = View(lambda *_: silent.future, live=True)
    with ThreadPoolExecutor(8) as threads:
        waiting = {threads.submit(seen.stat, "file") for _ in range(8)}
        refused_at_once, patient = wait(waiting, return_when="FIRST_EXCEPTION")
        while len(patient) > 3:
            done, patient = wait(patient, return_when="FIRST_COMPLETED")
            refused_at_once |= done
        for each in refused_at_once:
            assert isinstance(error := each.exception(), OSError) and error.errno == errno.EIO
        assert refused(seen.stat, "file") == errno.EIO
        assert not any(each.done() for each in patient)
        silent.resolve(Folder(str(tmp_path)).stat(""))
        assert [each.result().mode for each in patient] == [tmp_path.stat().st_mode] * 3


def test_views_are_folders_of_a_tree_which_are_there_whatever_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    gone = View(lambda *_: completed(errno.EIO), live=True)
    tree = Tree({"a/x": View(Asked(tmp_path), live=True), "a/y": gone})
    assert {name for name, _ in tree.list("")} == {"a"} and {name for name, _ in tree.list("a")} == {"x", "y"}
    assert read(tree.open("a/x/file"), 0, 9) == b"text"
    assert tree.stat("a/y") == tree.stat("a") == tree.stat("")
    assert refused(tree.list, "a/y") == errno.EIO
    assert refused(tree.stat, "b") == refused(tree.stat, "a/z/w") == errno.ENOENT


def test_without_fuse_the_error_names_what_is_missing_and_proposes_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MountError, match=r"fusermount3 is missing.*job\.sync\(\)"):
        table.check_fuse()
