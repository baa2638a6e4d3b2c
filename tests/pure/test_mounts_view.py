"""What is below FUSE: the files of a folder, and how they are seen from elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.plane import Promise, completed
from monarch.actor import Future
from monarch.errors import MountError
from monarch.job.base.mounts import MountingJob
from monarch.mounts import Mount, show_folder, table, view
from monarch.mounts.blocks import BLOCK, Memory
from monarch.mounts.folder import Folder
from monarch.mounts.source import tried
from monarch.mounts.tree import MountTree
from monarch.mounts.view import MountView, OpenFile


class Asked:
    """The other side of a view, in this process; `questions` have been asked, `sent` bytes of
    content came.
    """

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


def operations_of(seen: MountView, live: bool) -> Any:
    """What answers the kernel, which is played here."""
    try:
        from monarch.mounts.fuse import Operations
    except (ImportError, OSError) as error:
        pytest.skip(f"libfuse is missing: {error}")
    return Operations(MountTree({"": seen}), 1, threading.Event(), live)


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
    kept = MountView(asked, live=False)
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
    kept = MountView(asked, live=False)
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
    live = MountView(Asked(tmp_path), live=True)
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
    seen = MountView(Asked(tmp_path), live)
    file = seen.open("file")
    (tmp_path / "new").write_bytes(bytes(4 * BLOCK))
    os.replace(tmp_path / "new", path)
    seen.forget({"": {"file"}})
    assert refused(file.read, 2 * BLOCK, 10) == errno.EIO


@pytest.mark.parametrize("change", ["grown", "rewritten"])
def test_content_that_is_not_what_was_opened_is_an_error_and_growth_is_none(
    tmp_path: Path, change: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * BLOCK))
    file = MountView(Asked(tmp_path), live=False).open("file")
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
    kept = MountView(Asked(tmp_path), live=False)
    assert read(kept.open("file"), 0, 10) == b"old"
    path.write_text("edited")
    monkeypatch.setattr(view, "_LIFE", 0.0)
    # at which the kernel looks at it again, and opens it again
    assert refused(kept.open, "file") == errno.ESTALE
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
    seen = MountView(lambda *question: silent.future if hangs else asked(*question), live=True)
    for function in (seen.stat, seen.names, seen.link, seen.open):
        assert refused(function, "file") == errno.EIO
    hangs = False
    file = seen.open("file")
    assert read(file, 0, 10) == b"text"


@pytest.mark.parametrize("live", [True, False])
def test_the_kernel_is_told_no_end_of_file_that_is_not_of_the_one_open(
    tmp_path: Path, live: bool
) -> None:
    operations = operations_of(MountView(Asked(tmp_path), live), live)
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
    operations = operations_of(MountView(Asked(tmp_path), live=True), live=True)
    (tmp_path / "file").write_bytes(bytes(3 * BLOCK))
    operations.getattr("/file")
    operations.open("/file", SimpleNamespace())
    os.truncate(tmp_path / "file", 5)
    operations._tree.views[""].forget()
    assert operations.getattr("/file")["st_size"] == 5


def test_blocks_are_fetched_ahead_of_who_reads_in_order(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(40 * BLOCK))
    asked = Asked(tmp_path)
    file = MountView(asked, live=False).open("file")

    def fetched() -> list[int]:
        runs = [
            range(args[1] // BLOCK, (args[1] + args[2]) // BLOCK)
            for what, *args in asked.questions
            if what == "read"
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
def test_a_kept_file_that_is_rewritten_in_place_is_an_error_for_who_has_it_open(
    tmp_path: Path, change: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 30 * BLOCK)
    before = path.stat()
    kept = MountView(Asked(tmp_path), live=False)
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
    file = MountView(Asked(tmp_path), live=False, memory=Memory(16)).open("file")
    content = read(file, 0, 12 * BLOCK)
    (tmp_path / "other").hardlink_to(path)
    for index in range(12, 30):
        content += read(file, index * BLOCK, BLOCK)
    assert content == path.read_bytes()


def test_of_a_file_that_grows_only_what_is_new_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(BLOCK // 2))
    asked = Asked(tmp_path)
    live = MountView(asked, live=True)
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
    seen = MountView(lambda *_: silent.future, live=True)
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


def test_views_are_folders_of_a_tree_which_are_there_despite_failures(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    gone = MountView(lambda *_: completed(errno.EIO), live=True)
    tree = MountTree({"a/x": MountView(Asked(tmp_path), live=True), "a/y": gone})
    assert {name for name, _ in tree.list("")} == {"a"} and {
        name for name, _ in tree.list("a")
    } == {"x", "y"}
    assert read(tree.open("a/x/file"), 0, 9) == b"text"
    assert tree.stat("a/y") == tree.stat("a") == tree.stat("")
    assert refused(tree.list, "a/y") == errno.EIO
    assert refused(tree.stat, "b") == refused(tree.stat, "a/z/w") == errno.ENOENT


def test_memory_does_not_grow_with_the_files_that_are_opened(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    for index in range(8):
        (tmp_path / f"file{index}").write_text("text")
        (tmp_path / "__pycache__" / f"file{index}").write_text("text")
    memory = Memory(4)
    seen = [MountView(Asked(tmp_path), live, memory) for live in (True, False)]
    for index in range(8):
        for each in seen:
            each.open(f"file{index}")
            each.open(f"__pycache__/file{index}")
    assert len(memory._blocks) == 4


def test_readers_of_many_files_at_once_get_each_block_once(tmp_path: Path) -> None:
    for index in range(6):
        (tmp_path / f"file{index}").write_bytes(bytes(8 * BLOCK))
    asked = Asked(tmp_path)
    memory = Memory(12)
    views = [MountView(asked, live=False, memory=memory) for _ in range(2)]
    files = [views[index % 2].open(f"file{index}") for index in range(6)]
    for half in range(16):
        for file in files:
            assert len(read(file, half * BLOCK // 2, BLOCK // 2)) == BLOCK // 2
    assert asked.sent == 6 * 8 * BLOCK


def test_while_content_hangs_and_names_are_answered_each_wait_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MOST_PATIENT", 0)
    monkeypatch.setattr(view, "SILENCE", 0.2)
    (tmp_path / "file").write_bytes(bytes(BLOCK))
    asked = Asked(tmp_path)
    silent: Promise[Any] = Promise("an answer")

    def ask(what: str, *args: Any) -> Future[Any]:
        if what == "read":
            return silent.future
        promise: Promise[Any] = Promise("an answer")  # which is waited for
        threading.Timer(0.001, lambda: promise.resolve(asked(what, *args).get())).start()
        return promise.future

    seen = MountView(ask, live=True)
    end = time.monotonic() + 60
    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(seen.open, "file")
        while not reader.done() and time.monotonic() < end:
            seen.forget()
            with suppress(OSError):  # on a machine that is busy
                seen.stat("file")
        ended = reader.done()
        silent.resolve(errno.ENOENT)
        assert (
            ended and isinstance(error := reader.exception(), OSError) and error.errno == errno.EIO
        )


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("changed", [None, {"": {"a", "b"}}])
def test_what_was_asked_before_a_change_is_not_kept_after_it(
    tmp_path: Path, live: bool, changed: dict[str, set[str]] | None
) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    asked = Asked(tmp_path)
    meanwhile = True

    def ask(*question: Any) -> Future[Any]:
        answer = asked(*question)
        if meanwhile:
            path.write_text("longer")
            (tmp_path / "b").touch()
            seen.forget(changed)
        return answer

    seen = MountView(ask, live)
    seen.stat("a")
    path.write_text("old")
    (tmp_path / "b").unlink()
    assert list(seen.names("")) == ["a"]
    meanwhile = False
    assert seen.stat("a").size == 6 and set(seen.names("")) == {"a", "b"}


def test_without_proof_a_kept_file_whose_ctime_has_changed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 12 * BLOCK)
    (tmp_path / "other").write_bytes(bytes(12 * BLOCK))
    before = path.stat()
    kept = MountView(Asked(tmp_path), live=False, memory=Memory(2))
    file = kept.open("file")
    assert read(file, 0, 3) == b"aaa"
    read(kept.open("other"), 0, 12 * BLOCK)
    path.write_bytes(b"b" * 12 * BLOCK)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        assert refused(file.read, 10 * BLOCK, 3) == errno.EIO


def test_a_kept_file_may_grow_more_than_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 30 * BLOCK)
    file = MountView(Asked(tmp_path), live=False).open("file")
    for index in (0, 10, 20):
        assert read(file, index * BLOCK, 3) == b"aaa"
        with path.open("ab") as end:
            end.write(b"more")
    assert read(file, 29 * BLOCK, 2 * BLOCK) == b"a" * BLOCK


def test_a_live_file_that_was_truncated_ends_with_its_first_short_block(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 4 * BLOCK)
    live = MountView(Asked(tmp_path), live=True, memory=Memory(2))
    file = live.open("log")
    read(file, 2 * BLOCK, 10)
    live._blocks._memory.drop((live._blocks, "log", 1))
    os.truncate(path, BLOCK + 100)
    assert read(file, BLOCK, BLOCK + 10) == b"a" * 100


def test_folders_that_were_listed_first_are_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_MOST", 8)
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        for index in range(3):
            (tmp_path / folder / str(index)).touch()
    asked = Asked(tmp_path)
    live = MountView(asked, live=True)
    monkeypatch.setattr(live, "_life", 1e9)
    for folder in ("a", "b", "c", "b", "c", "a"):
        assert set(live.names(folder)) == {"0", "1", "2"} and len(live._known) <= 8
    assert [path for _, path in asked.questions] == ["a", "b", "c", "a"]
    for index in range(20):
        refused(live.stat, f"a/absent{index}")
    assert len(live._known) <= 8


def test_folders_that_come_along_with_another_are_not_listed_if_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarch.mounts.folder._MOST_NAMES", 10)
    for name, files in {"a": 3, "b": 9, "c": 4, "d": 1}.items():
        (tmp_path / name).mkdir()
        for index in range(files):
            (tmp_path / name / str(index)).touch()
    asked = Asked(tmp_path)
    listed, _ = asked.folder.tree("")
    assert "" in listed and "b" not in listed
    assert sum(map(len, listed.values())) <= 10 and len(listed) > 1
    assert len(MountView(asked, live=False).names("b")) == 9


@pytest.mark.parametrize("written", ["before", "after", "always"])
def test_content_is_told_with_what_the_file_was_when_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    pread = os.pread
    times = 0

    def written_meanwhile(fd: int, size: int, offset: int) -> bytes:
        nonlocal times
        times += 1
        before = pread(fd, size, offset)
        if times == 1 or written == "always":
            path.write_bytes(b"a" * (times + 1))
        return before if written == "after" else pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", written_meanwhile)
    shown = Folder(str(tmp_path))
    attributes, _, content = shown.read("file", 0, 100)
    assert attributes == shown.stat("file") and len(content) == attributes.size


def test_the_point_of_a_remote_mount_is_absolute_and_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Mount, "open", lambda mount: mount)
    hosts: Any = None
    for point, absolute in {"~/seen": "/home/me/seen", "seen": f"{tmp_path}/seen"}.items():
        assert show_folder(hosts, tmp_path, point).point == absolute
        job = MountingJob()
        job.remote_mount(tmp_path, point, python_exe=None)
        assert [each.point for each in job._mounts] == [absolute]


def test_a_folder_or_interpreter_that_is_not_there_is_refused_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    job = MountingJob()
    with pytest.raises(ValueError, match=r"must be one on this machine, got .*missing"):
        job.remote_mount(tmp_path / "missing", python_exe=None)
    with pytest.raises(ValueError, match=r"bin/python' should be the interpreter .* is no file"):
        job.remote_mount(tmp_path, python_exe="bin/python")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    job.remote_mount(tmp_path, python_exe="bin/python")
    assert [each.python for each in job._mounts] == ["bin/python"]


def test_a_block_that_grew_is_joined_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 1000)
    live = MountView(Asked(tmp_path), live=True)
    file = live.open("log")
    with path.open("ab") as end:
        end.write(b"b")
    live.forget({"": {"log"}})
    first, second = file.read(0, 2000)[0], file.read(0, 2000)[0]
    assert first == b"a" * 1000 + b"b" and first.obj is second.obj


def test_without_fuse_the_error_names_what_is_missing_and_proposes_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MountError, match=r"fusermount3 is missing.*job\.sync\(\)"):
        table.check_fuse()


def test_mounts_that_others_have_named_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    names = (
        "",
        "monarch",
        "monarch:",
        "monarch:x:y:z",
        f"monarch:{'9' * 5000}:1:k",
        "monarch::",
        "a:1:2:3",
    )
    found = [table.Mounted(name, f"/{number}") for number, name in enumerate(names)]
    monkeypatch.setattr(
        table, "find_mounts", lambda: [*found, table.Mounted("monarch:1:0:k", "/ours")]
    )
    monkeypatch.setattr(table, "unmount", removed.append)
    table.remove_stale()
    assert removed == ["/ours"]  # whose process has ended
