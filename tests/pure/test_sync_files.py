"""Workspaces as files: what is found in folders, what a host makes of it, and what it refuses."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import time
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from helpers.waiting import PATIENCE, wait_until
from monarch._ours import Folder
from monarch.sync import Scanner, Workspace
from monarch.sync import store as store_module
from monarch.sync.build import Build
from monarch.sync.manifest import File, Manifest, decode
from monarch.sync.removal import is_intact
from monarch.sync.scan import Scan
from monarch.sync.store import WorkspaceStore, base_folder, changes

NOTHING = hashlib.sha256(b"").hexdigest()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> WorkspaceStore:
    (tmp_path / "hosts").mkdir()
    return WorkspaceStore(tmp_path / "hosts", "project-1")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def scan(*folders: Path) -> Scan:
    scanner = Scanner(Workspace.of(folders[0] if len(folders) == 1 else folders))
    found = scanner.scan()
    scanner.keep(found.manifest)
    return found


def paths(found: Scan) -> set[str]:
    return {file.path for file in found.manifest.files}


def bring(store: WorkspaceStore, found: Scan) -> list[str]:
    """A version as a client brings it; which contents went."""
    build = store.begin(decode(found.manifest.encoded))
    sent = list(build.missing)
    send(build, found)
    build.finish()
    return sorted(os.path.basename(found.sources[digest]) for digest in sent)


def send(build: Build, found: Scan) -> None:
    for digest in list(build.missing):
        build.write(digest, 0, memoryview(Path(found.sources[digest]).read_bytes()))


def content(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
        )
    return found


# what is in a workspace


def test_rules_of_git_say_what_is_left_out_also_in_deeper_folders(project: Path) -> None:
    write(project, {
        ".gitignore": "*.log\n!keep.log\nbuild/\n/top.txt\n", ".monarchignore": "*.ckpt\n!a.log\n", "sub/.gitignore": "!deep.log\n",
        "a.log": "", "b.log": "", "keep.log": "", "build/x.py": "", "top.txt": "", "sub/top.txt": "", "sub/deep.log": "",
        "sub/other.log": "", "model.ckpt": "", "train.py": "", "sub/build": "a file\n",
    })  # fmt: skip
    found = scan(project)
    rules = {".gitignore", ".monarchignore", "sub/.gitignore"}
    assert paths(found) == rules | {
        "a.log",
        "keep.log",
        "sub/top.txt",
        "sub/deep.log",
        "train.py",
        "sub/build",
    }
    assert dict(found.skipped) == {
        "b.log": "ignored by .gitignore", "build/": "ignored by .gitignore", "top.txt": "ignored by .gitignore",
        "sub/other.log": "ignored by .gitignore", "model.ckpt": "ignored by .monarchignore",
    }  # fmt: skip


def test_rules_of_the_repository_above_a_folder_count(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "repo/.git/HEAD": "",
            "repo/.gitignore": "*.log\n/part/no.py\n",
            "repo/part/yes.py": "",
            "repo/part/no.py": "",
        },
    )
    write(tmp_path, {"repo/part/a.log": ""})
    assert paths(scan(tmp_path / "repo" / "part")) == {"yes.py"}


def test_repositories_caches_and_virtual_environments_are_always_left_out(project: Path) -> None:
    write(
        project,
        {
            ".git/config": "",
            "__pycache__/a.pyc": "",
            ".monarch/job_state.pkl": "",
            "env/pyvenv.cfg": "",
            "env/bin/x": "",
        },
    )
    write(project, {"a.py": ""})
    found = scan(project)
    assert paths(found) == {"a.py"}
    assert (
        set(dict(found.skipped)) == {".git/", ".monarch/", "env/"} and found.manifest.folders == {}
    )


def test_rules_that_have_changed_count_for_what_was_seen_before(project: Path) -> None:
    write(project, {".gitignore": "*.log\n", "a.log": "", "a.py": ""})
    scanner = Scanner(Workspace.of(project))
    assert "a.log" not in paths(scanner.scan())
    (project / ".gitignore").write_text("*.py\n")
    assert paths(scanner.scan()) == {".gitignore", "a.log"}
    assert paths(scan(project)) == {".gitignore", "a.log"}


def test_rules_for_folders_count_when_a_file_becomes_one(project: Path) -> None:
    write(project, {".gitignore": "build/\n", "build": "a file"})
    scanner = Scanner(Workspace.of(project))
    assert "build" in paths(scanner.scan())
    (project / "build").unlink()
    write(project, {"build/huge": ""})
    assert paths(scanner.scan()) == {".gitignore"}
    shutil.rmtree(project / "build")
    write(project, {"build": "a file"})
    assert paths(scanner.scan()) == {".gitignore", "build"}


def test_what_vanishes_while_it_is_looked_at_is_left_out(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        project, {"a.py": "1", "b.py": "2", "c/d.py": "3", "c/.gitignore": "*.log\n", "e.py": "5"}
    )
    scandir = os.scandir

    def gone(path: str) -> Any:
        if path == str(project / "c"):
            shutil.rmtree(path)
        listing = scandir(path)
        entries = list(listing)
        (project / "b.py").unlink(missing_ok=True)
        return nullcontext(entries)

    monkeypatch.setattr("monarch.sync.scan.os.scandir", gone)
    found = scan(project)
    assert paths(found) == {"a.py", "e.py"} and found.manifest.folders == {}


def test_only_what_has_changed_is_read_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"a.py": "1", "b.py": "2", "c/d.py": "3"})
    late = time.time_ns() + 10**9  # as if some time had gone by since
    monkeypatch.setattr("monarch.sync.scan.time.time_ns", lambda: late)
    scan(project)
    read: list[str] = []

    def note(path: str, advance: Any) -> tuple[str, int]:
        read.append(path)
        return NOTHING, 0

    monkeypatch.setattr("monarch.sync.scan._hash", note)
    scan(project)
    assert read == []
    (project / "b.py").write_text("5")
    scan(project)
    assert read == [str(project / "b.py")]


def test_links_stay_links_and_are_never_followed(project: Path, tmp_path: Path) -> None:
    write(project, {"a/x.py": "1"})
    write(tmp_path, {"outside/secret": "no"})
    (project / "inside").symlink_to("a/x.py")
    (project / "absolute").symlink_to(project / "a")
    (project / "out").symlink_to(tmp_path / "outside")
    (project / "broken").symlink_to("nowhere")
    found = scan(project)
    assert found.manifest.links == {
        "inside": "a/x.py", "absolute": "a", "broken": "nowhere", "out": str(tmp_path / "outside"),
    }  # fmt: skip
    assert paths(found) == {"a/x.py"}
    assert [path for path, _ in found.skipped] == ["out"]


def test_links_that_name_the_workspace_by_another_path_lead_into_it_on_hosts(
    project: Path, tmp_path: Path
) -> None:
    write(project, {"a/x.py": "1"})
    home = tmp_path / "home"
    home.symlink_to(project.parent)  # as where homes are on another disk
    (tmp_path / "same").symlink_to(project)
    (project / "a" / "to_a_file").symlink_to(home / project.name / "a" / "x.py")
    (project / "to_a_link").symlink_to(home / project.name / "a" / "to_a_file")
    (project / "to_nothing_yet").symlink_to(home / project.name / "checkpoints" / "last")
    (project / "to_itself").symlink_to(tmp_path / "same")
    (project / "by_way_of_it").symlink_to(os.path.relpath(home / project.name / "a", project))
    (project / "out").symlink_to(home / "nowhere")
    found = scan(project)
    assert found.manifest.links == {
        "a/to_a_file": "x.py", "to_a_link": "a/to_a_file", "to_nothing_yet": "checkpoints/last", "to_itself": ".", "by_way_of_it": "a",
        "out": str(home / "nowhere"),
    }  # fmt: skip
    assert [path for path, _ in found.skipped] == ["out"]


def test_several_folders_go_by_their_names_or_where_one_says(tmp_path: Path) -> None:
    write(tmp_path, {"one/a.py": "", "two/b.py": "", "three/c.py": ""})
    assert paths(scan(tmp_path / "one", tmp_path / "two")) == {"one/a.py", "two/b.py"}
    workspace = Workspace({tmp_path / "one": "", tmp_path / "three": "lib/deep"})
    assert paths(Scanner(workspace).scan()) == {"a.py", "lib/deep/c.py"}
    write(tmp_path, {"one/lib/deep/c.py": "another"})
    with pytest.raises(ValueError, match="two things"):
        Scanner(workspace).scan()


def test_a_workspace_says_what_is_wrong_with_its_folders(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a list of folders"):
        Workspace(str(tmp_path))
    with pytest.raises(NotADirectoryError, match="nowhere"):
        Workspace([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="leads out"):
        Workspace({tmp_path: "../x"})
    (tmp_path / "a" / "x").mkdir(parents=True)
    (tmp_path / "b" / "x").mkdir(parents=True)
    with pytest.raises(ValueError, match="one place"):
        Workspace([tmp_path / "a" / "x", tmp_path / "b" / "x"])


# what a host makes of it


def test_a_host_has_what_the_client_has_with_modes_and_times(
    project: Path, store: WorkspaceStore
) -> None:
    write(
        project,
        {
            "a.py": "1",
            "run.sh": "#!/bin/sh",
            "deep/er/b.py": "2",
            "empty.py": "",
            "deep/same.py": "1",
            "deep/void": "",
        },
    )
    (project / "run.sh").chmod(0o755)
    (project / "nothing").mkdir()
    (project / "nothing").chmod(0o750)
    os.utime(project / "a.py", ns=(5, 1_600_000_000_123_456_789))
    (project / "link").symlink_to("deep/er")
    found = scan(project)
    assert bring(store, found) == [
        "b.py",
        "run.sh",
        "same.py",
    ], "what two files have in common goes once, nothing never"
    assert content(store.current.resolve()) == content(project)
    assert stat.S_IMODE((store.current / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((store.current / "nothing").stat().st_mode) == 0o750
    assert (store.current / "a.py").stat().st_mtime_ns == 1_600_000_000_123_456_789
    assert store.find(found.manifest.id) is not None


def test_only_what_a_host_lacks_goes_there_and_the_rest_is_the_same_file(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "1", "b.py": "2", "c.py": "3"})
    bring(store, scan(project))
    before = {name: (store.current / name).stat().st_ino for name in ("a.py", "b.py", "c.py")}
    (project / "b.py").write_text("4")
    (project / "c.py").rename(project / "moved.py")
    assert bring(store, scan(project)) == ["b.py"]
    assert content(store.current.resolve()) == {"a.py": b"1", "b.py": b"4", "moved.py": b"3"}
    assert (store.current / "a.py").stat().st_ino == before["a.py"]
    assert (store.current / "b.py").stat().st_ino != before["b.py"]


def test_two_files_of_a_version_are_never_one_file(project: Path, store: WorkspaceStore) -> None:
    write(project, {"a.py": "same", "b.py": "same", "c.py": "", "d.py": ""})
    bring(store, scan(project))
    assert (
        len({(store.current / name).stat().st_ino for name in ["a.py", "b.py", "c.py", "d.py"]})
        == 4
    )


def test_what_a_program_has_changed_there_is_sent_again(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "1", "b.py": "2"})
    found = scan(project)
    bring(store, found)
    with (store.current / "a.py").open("a") as file:
        file.write("more")
    assert store.find(found.manifest.id) is None
    assert bring(store, found) == ["a.py"]
    assert (store.current / "a.py").read_text() == "1"
    (store.current / "b.py").unlink()
    assert bring(store, found) == ["b.py"]


def test_another_workspace_of_the_host_lends_what_it_has_as_copies(
    project: Path, store: WorkspaceStore, tmp_path: Path
) -> None:
    write(project, {"a.py": "1"})
    bring(store, scan(project))
    other = WorkspaceStore(tmp_path / "hosts", "project-2")
    assert bring(other, scan(project)) == []
    assert (other.current / "a.py").read_text() == "1"
    assert (other.current / "a.py").stat().st_ino != (store.current / "a.py").stat().st_ino


def test_old_versions_go_or_become_the_next_but_for_those_with_files_of_programs(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "0", "sub/b.py": "0", "old/c.py": "0"})
    (project / "link").symlink_to("a.py")
    bring(store, scan(project))
    (store.current / "sub" / "checkpoint").write_text("precious")
    (store.current / "__pycache__").mkdir()
    first = store.current.resolve()
    folders = []
    for number in range(1, 6):
        (project / "a.py").write_text(str(number))
        if number == 4:
            shutil.rmtree(project / "old")
            write(project, {"new/d.py": "4", "sub/e.py": "4"})
            (project / "link").unlink()
            (project / "link").symlink_to("sub")
        bring(store, scan(project))
        (store.current / "sub" / "__pycache__").mkdir()
        (store.current / "sub" / "__pycache__" / "b.pyc").touch()
        stay = store.clean_up()
        folders.append(os.stat(store.current).st_ino)
        kept = {
            path: value
            for path, value in content(store.current.resolve()).items()
            if "__pycache__" not in path
        }
        assert kept == content(project)
    assert stay == [str(first)]
    assert content(first) == {"sub": None, "sub/checkpoint": b"precious"}
    assert len([path for path in first.parent.iterdir() if path.is_dir()]) == 4
    assert folders[3] == folders[0] and folders[4] == folders[1], "they are recycled"


def test_a_spare_version_becomes_the_next_one_until_an_old_one_can(
    project: Path, store: WorkspaceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spares() -> list[Path]:
        return [path for path in store.current.parent.glob("versions/spare*") if path.is_dir()]

    linked: list[str] = []
    link = os.link

    def note(source: str, target: str, **options: Any) -> None:
        linked.append(os.path.basename(target))
        link(source, target, **options)

    monkeypatch.setattr("monarch.sync.build.os.link", note)
    for text, made in (("1", 1), ("22", 1), ("333", 0), ("4444", 0)):
        write(project, {"a.py": text, "b/c.py": "same", "empty": ""})
        linked.clear()
        bring(store, scan(project))
        assert "c.py" not in linked and content(store.current) == content(project)
        assert store.clean_up() == [] and content(store.current) == content(project)
        store.make_spare()
        assert [content(path) for path in spares()] == [content(project)] * made
        store.clean_up()
        assert len(spares()) == made


def test_what_a_program_has_changed_is_in_no_spare_version(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "1", "b.py": "2"})
    bring(store, scan(project))
    (store.current / "a.py").write_text("by a program")
    store.make_spare()
    assert len(os.listdir(store.current.parent / "versions")) == 2  # one, and its list


def test_an_empty_file_that_was_only_touched_arrives_with_its_time(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"empty": ""})
    bring(store, scan(project))
    os.utime(project / "empty", (1, 1))
    assert bring(store, scan(project)) == []
    assert os.stat(store.current / "empty").st_mtime == 1


def test_a_version_with_a_file_of_a_program_is_not_recycled(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "0"})
    for number in range(1, 6):
        (project / "a.py").write_text(str(number))
        bring(store, scan(project))
        (store.current / f"made{number}").write_text("precious")
        store.clean_up()
    versions = [path for path in store.current.resolve().parent.iterdir() if path.is_dir()]
    made = sorted(name for path in versions for name in content(path) if name.startswith("made"))
    assert made == [f"made{number}" for number in range(1, 6)]


def test_what_programs_moved_or_put_in_the_place_of_links_outlives_its_version(
    project: Path, store: WorkspaceStore, tmp_path: Path
) -> None:
    write(project, {"a.py": "0", "data/d.txt": "precious"})
    (project / "latest").symlink_to("data")
    bring(store, scan(project))
    version, outside = store.current.resolve(), tmp_path / "outside"
    shutil.move(version / "data", outside)
    (version / "data").symlink_to(outside)
    (outside / "__pycache__").mkdir()
    (version / "latest").unlink()
    (version / "latest").write_text("made by a program")
    for number in range(1, 6):
        (project / "a.py").write_text(str(number))
        bring(store, scan(project))
        stay = store.clean_up()
    assert stay == [str(version)]
    assert content(outside) == {"__pycache__": None, "d.txt": b"precious"}
    assert content(version) == {"data": str(outside), "latest": b"made by a program"}


def test_old_versions_go_also_where_none_is_in_use(project: Path, store: WorkspaceStore) -> None:
    build = store.begin(scan(project).manifest)
    os.close(build._lock)  # as if its process had died
    store.clean_up()
    assert not build.path.exists()


def test_a_version_that_breaks_off_leaves_the_one_in_use(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "1", "b.py": "2"})
    first = scan(project)
    bring(store, first)
    versions = set(store.current.resolve().parent.iterdir())
    write(project, {"a.py": "other", "b.py": "another"})
    found = scan(project)
    build = store.begin(found.manifest)
    digest = next(iter(build.missing))
    build.write(digest, 0, memoryview(Path(found.sources[digest]).read_bytes()))
    with pytest.raises(ValueError, match="have not come"):
        build.finish()
    build.drop()
    assert store.find(first.manifest.id) is not None
    assert set(store.current.resolve().parent.iterdir()) == versions


def test_what_a_dead_process_left_is_removed_and_not_what_is_being_made(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "1"})
    found = scan(project)
    build, left = store.begin(found.manifest), store.begin(found.manifest)
    os.close(left._lock)  # as if its process had died
    another = store.begin(found.manifest)
    send(another, found)
    another.finish()
    store.clean_up()
    assert build.path.exists() and not left.path.exists()
    send(build, found)
    build.finish()
    assert store.current.resolve() == build.path


def test_a_spare_version_that_another_host_makes_is_none_that_a_dead_process_left(
    project: Path, store: WorkspaceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts that share a folder: one looks for leftovers as another one lists its spare version."""
    write(project, {"a.py": "1"})
    bring(store, scan(project))
    versions = store.current.parent / "versions"
    lists_read, refused = Event(), Event()
    lock, make_empty, name_in_use = store_module.try_lock, Build.make_empty, store._name_in_use

    def tried(fd: int) -> bool:
        locked = lock(fd)
        if not locked and current_thread() is other:
            refused.set()
        return locked

    def made(build: Build) -> None:
        make_empty(build)
        assert lists_read.wait(PATIENCE)

    def next_step() -> str:
        lists_read.set()
        wait_until(lambda: refused.is_set() or any(versions.glob("spare*.json")), what="a step")
        return name_in_use()

    monkeypatch.setattr(store_module, "try_lock", tried)
    monkeypatch.setattr(Build, "make_empty", made)
    other = Thread(target=WorkspaceStore(tmp_path / "hosts", "project-1").make_spare)
    other.start()
    wait_until(lambda: any(versions.glob("spare*")), what="its folder")
    monkeypatch.setattr(store, "_name_in_use", next_step)
    store.clean_up()
    other.join(PATIENCE)
    spares = list(versions.glob("spare*.json"))
    assert len(spares) == 1 and content(spares[0].with_suffix("")) == content(project)


def test_a_process_that_dies_between_a_folder_and_its_list_stops_no_later_sync(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "1"})
    bring(store, scan(project))
    store.make_spare()
    (listed,) = store.current.parent.glob("versions/spare*.json")
    shutil.rmtree(listed.with_suffix(""))  # as one does that takes it for its own
    write(project, {"a.py": "22"})
    bring(store, scan(project))
    store.clean_up()
    assert content(store.current) == content(project) and not listed.exists()


@pytest.mark.parametrize("change", ["removed", "shorter", "other"])
def test_what_another_workspace_loses_while_it_lends_it_is_sent(
    change: str, project: Path, store: WorkspaceStore, tmp_path: Path, monkeypatch: Any
) -> None:
    write(project, {"a.py": "one", "b.py": "two"})
    bring(store, scan(project))

    def look(path: str, file: Any, folder: int | None = None) -> bool:
        intact = is_intact(path, file, folder)
        if path.endswith("a.py"):
            if change == "removed":
                os.unlink(path)
            else:
                Path(path).write_text("on" if change == "shorter" else "eno")
        return intact

    monkeypatch.setattr("monarch.sync.build.is_intact", look)
    other = WorkspaceStore(tmp_path / "hosts", "project-2")
    assert bring(other, scan(project)) == ["a.py"]
    assert content(other.current) == content(project)


def test_content_that_is_not_what_its_digest_says_is_refused(
    project: Path, store: WorkspaceStore
) -> None:
    write(project, {"a.py": "right"})
    build = store.begin(scan(project).manifest)
    (digest,) = build.missing
    with pytest.raises(ValueError, match=r"a\.py has not arrived as it was sent"):
        build.write(digest, 0, memoryview(b"wrong"))
    build.drop()
    build = store.begin(scan(project).manifest)
    with pytest.raises(ValueError, match="was not asked for"):
        build.write(NOTHING, 0, memoryview(b"x"))
    with pytest.raises(ValueError, match="a piece of"):
        build.write(digest, 3, memoryview(b"ht"))
    build.drop()
    assert not store.current.exists()


def test_pieces_of_a_large_file_are_put_together(project: Path, store: WorkspaceStore) -> None:
    data = os.urandom(300_000)
    (project / "large.bin").write_bytes(data)
    build = store.begin(scan(project).manifest)
    (digest,) = build.missing
    for offset in range(0, len(data), 65_536):
        build.write(digest, offset, memoryview(data)[offset : offset + 65_536])
    build.finish()
    assert (store.current / "large.bin").read_bytes() == data


def test_without_room_nothing_begins_and_the_error_says_how_much_is_wanted(
    project: Path, store: WorkspaceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"a.py": "1"})
    first = scan(project)
    bring(store, first)
    (project / "b.bin").write_bytes(bytes(3_000_000))

    class Full:
        f_bavail, f_frsize = 100, 4096

    monkeypatch.setattr("monarch.sync.build.os.statvfs", lambda path: Full)
    with pytest.raises(OSError, match=r"3\.0 MB are to come, 0\.4 MB are free") as raised:
        store.begin(scan(project).manifest)
    assert raised.value.errno == errno.ENOSPC
    assert store.find(first.manifest.id) is not None
    assert len([path for path in store.current.resolve().parent.iterdir() if path.is_dir()]) == 1


def test_a_disk_that_is_full_at_the_last_step_is_said_and_nothing_is_left(
    project: Path, store: WorkspaceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"a.py": "1"})
    first = scan(project)
    bring(store, first)
    before = content(store.current.parent)
    (project / "a.py").write_text("2")
    found = scan(project)

    def full(folder: Folder, old: str, new: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    build = store.begin(found.manifest)
    send(build, found)
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "move", full)
        with pytest.raises(OSError, match=r"no room for the workspace .* stays as it is"):
            build.finish()
    build.drop()
    assert content(store.current.parent) == before


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/x",
        "a/../../x",
        "",
        ".",
        "link/x",
        "missing/x",
        "a//x",
        "a/./x",
        "a.py",
        "x\0y",
        "a/..",
    ],
)
def test_a_host_refuses_paths_that_lead_elsewhere(path: str) -> None:
    good = Manifest([File("a.py", 0o644, 1, 0, NOTHING)], {"link": "/etc"}, {"a": 0o755})
    assert decode(good.encoded).id == good.id
    with pytest.raises(ValueError, match="leads out|two things"):
        decode(good.encoded + f'\n[{json.dumps(path)},420,1,0,"{NOTHING}"]'.encode())
    with pytest.raises(ValueError, match="leads out|two things"):
        decode(
            Manifest(
                good.files,
                {**good.links, path: "x"} if path != "link" else {},
                {**good.folders, path: 0o755},
            ).encoded
        )


def test_a_host_refuses_what_is_no_manifest_and_names_that_are_none(tmp_path: Path) -> None:
    for data in (
        b"",
        b"{}",
        b"[1, 2]",
        b"[{}, {}, {}]",
        b'[{}, {}]\n["a"]',
        b"\xff",
        b'[{}, {}]\n["a", 493, 0, -1, "x"]',
        b'[{}, {}]\n["a", 493, 0, 0, "%b"],["b", 493, 0, 0, "%b"]' % ((b"0" * 64,) * 2),
    ):
        with pytest.raises(ValueError, match=r".+"):
            decode(data)
    for key in ("", "..", "a/b", ".hidden", "-x"):
        with pytest.raises(ValueError, match="no name of a workspace"):
            WorkspaceStore(tmp_path, key)


def test_a_folder_of_another_user_is_no_place_for_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_SYNC_FOLDER", str(tmp_path / "store"))
    assert stat.S_IMODE(base_folder().stat().st_mode) == 0o700
    (tmp_path / "store").chmod(0o777)
    with pytest.raises(PermissionError, match="MONARCH_SYNC_FOLDER"):
        base_folder()


def test_changes_are_what_is_new_other_or_gone() -> None:
    before = Manifest([entry("a"), entry("b"), entry("c"), entry("m")], {"l": "a", "k": "a"}, {})
    after = Manifest(
        [entry("a", mtime=2), entry("b", digest="1"), entry("d"), entry("m", mode=0o755)],
        {"l": "b", "k": "a"},
        {},
    )
    assert changes(before, after) == ["b", "d", "m", "l", "c"]


def entry(path: str, mode: int = 0o644, mtime: int = 1, digest: str = "0") -> File:
    return File(path, mode, mtime, 3, digest * 64)
