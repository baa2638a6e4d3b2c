"""What an agent knows of workspaces: which procs lag behind, and where new ones import from."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, cast

import pytest

from monarch._core.plane import HostedProc, ProcAddress
from monarch.sync import Scanner, Workspace
from monarch.sync.host import FindWorkspace, Lagging, Offer, Pieces, Reloaded, SettleVersion, _Host
from monarch.sync.manifest import File, Manifest
from monarch.sync.store import WorkspaceStore


class Proc:
    """A proc of a program, as the agent knows it: it has run for as long as this process."""

    def __init__(self, mesh: str, root: str) -> None:
        self.address = self.mesh = mesh
        self.root, self.rank, self.pid = root, 0, os.getpid()


A, B = (cast(HostedProc, Proc(name, f"client {name}")) for name in "ab")
BOTH = [A, B]


@pytest.fixture
def host(tmp_path: Path) -> _Host:
    """Has two workspaces that have changed once."""
    host = _Host()
    for key in ("one", "two"):
        for digest in "01":
            activate(host, tmp_path, key, digest)
    return host


def activate(host: _Host, base: Path, key: str, digest: str, *paths: str) -> None:
    files = [File(path, 0o644, 1, 3, digest * 64) for path in paths or ("m.py",)]
    host._activate(WorkspaceStore(base, key), key, {f"/client/{key}": ""}, Manifest(files, {}, {}))


def lagging(host: _Host, key: str, root: Any = None, procs: Any = BOTH) -> list[Lagging]:
    return host.find_lagging(key, root, procs)


def names(found: list[Lagging]) -> list[str]:
    return [each.name for each in found]


def reload(host: _Host, key: str, found: list[Lagging]) -> None:
    host.reloaded(Reloaded(key, [(each.address, each.at) for each in found]))


def test_procs_lag_until_they_have_reloaded(host: _Host) -> None:
    found = lagging(host, "one")
    assert names(found) == names(lagging(host, "one")) == ["a[0]", "b[0]"], "a reload may fail"
    reload(host, "one", found[:1])
    assert names(lagging(host, "one")) == ["b[0]"]


def test_a_reload_of_one_workspace_is_none_of_another(host: _Host) -> None:
    reload(host, "two", lagging(host, "two"))
    assert names(lagging(host, "one")) == ["a[0]", "b[0]"] and lagging(host, "two") == []


def test_what_one_client_asks_for_leaves_what_is_known_of_procs_of_others(host: _Host) -> None:
    root = cast(ProcAddress, "client b")
    found = lagging(host, "one", root)
    assert names(found) == ["b[0]"]
    reload(host, "one", found)
    assert names(lagging(host, "one", cast(ProcAddress, "client a"))) == ["a[0]"]
    assert lagging(host, "one", root) == []
    assert names(lagging(host, "one", procs=[A])) == ["a[0]"]
    assert len(host._reloaded) == 0, "that of a proc that has ended"


def test_a_change_after_the_look_is_not_taken_for_reloaded(host: _Host, tmp_path: Path) -> None:
    found = lagging(host, "one")
    activate(host, tmp_path, "one", "2")
    reload(host, "one", found)
    assert names(lagging(host, "one")) == ["a[0]", "b[0]"]


def test_a_workspace_is_there_for_new_procs_while_it_is_replaced(
    host: _Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []

    def look(before: Any, after: Any) -> list[str]:
        seen.append(set(host._active))
        return ["m.py"]

    monkeypatch.setattr("monarch.sync.host.changes", look)
    activate(host, tmp_path, "one", "2")
    assert seen == [{"one", "two"}]
    assert list(host._active) == ["two", "one"], "the last one last"


def test_modules_of_a_workspace_are_known_by_their_names_at_any_depth(
    host: _Host, tmp_path: Path
) -> None:
    activate(
        host,
        tmp_path,
        "one",
        "2",
        "top.py",
        "src/pkg/__init__.py",
        "src/pkg/inner.py",
        "data.txt",
        "__init__.py",
    )
    active = host._active["one"]
    assert all(map(active.has_module, ("top", "pkg", "pkg.sub.deep", "inner")))
    assert not any(map(active.has_module, ("src", "data", "torch", "")))


class Client:
    """Brings a folder to a host, step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = Workspace.of(folder)
        self.scanner = Scanner(self.workspace)

    def bring(self, host: _Host) -> None:
        """All of it, as a first copy."""
        found = self.scanner.scan()
        host.offer(
            Offer("b", self.workspace.key, {}, found.manifest.encoded), cast(ProcAddress, "client")
        )
        for digest in list(host._builds["b"][0].missing):
            content = Path(found.sources[digest]).read_bytes()
            host.write(Pieces("b", [(digest, 0, len(content))], content))
        host.settle(SettleVersion("b", True))
        self.scanner.keep(found.manifest)

    def look(self, *contents: str) -> FindWorkspace:
        """What has changed since what was sent, with some contents."""
        found = self.scanner.scan()
        change = self.scanner.change(found.manifest)
        assert change is not None
        data = [text.encode() for text in contents]
        table = [(hashlib.sha256(each).hexdigest(), 0, len(each)) for each in data]
        return FindWorkspace(
            self.workspace.key, found.manifest.id, {}, change[0], Pieces("", table, b"".join(data))
        )


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MONARCH_SYNC_FOLDER", str(tmp_path / "store"))
    folder = tmp_path / "project"
    for name, text in {
        "a.py": "1",
        "b.py": "22",
        "pkg/c.py": "333",
        "pkg/deep/d.py": "4444",
        "gone/e.py": "5",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "link").symlink_to("a.py")
    return Client(folder)


def files_below(folder: Path) -> dict[str, object]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): (path.read_text(), path.stat().st_mode, path.is_symlink())
        for path in found
    }


def test_a_change_makes_of_one_version_what_a_copy_of_all_would_be(client: Client) -> None:
    host, folder = _Host(), client.folder
    client.bring(host)
    (folder / "a.py").write_text("new")
    (folder / "b.py").rename(folder / "pkg" / "b.py")
    (folder / "pkg" / "c.py").chmod(0o755)
    (folder / "pkg" / "deep" / "d.py").unlink()
    (folder / "pkg" / "deep" / "e").mkdir()
    (folder / "gone" / "e.py").unlink()
    (folder / "gone").rmdir()
    (folder / "gone").write_text("a file")
    (folder / "empty.py").touch()
    (folder / "link").unlink()
    (folder / "link").symlink_to("gone")
    client.scanner.scan()  # as `--watch` looks, before it says that something has changed
    found = host.look(client.look("new", "a file"))
    assert found is not None and not found.had
    current = host._stores[client.workspace.key].current
    assert files_below(current) == files_below(folder) and (current / "pkg" / "deep" / "e").is_dir()
    assert len(host.find_lagging(client.workspace.key, None, BOTH)) == 2


def test_a_change_of_what_a_host_does_not_have_is_not_taken(client: Client) -> None:
    here, there = _Host(), _Host()
    client.bring(here)
    before = files_below(here._stores[client.workspace.key].current)
    (client.folder / "a.py").write_text("new")
    look = client.look("new")
    assert here.look(look._replace(id="0" * 64)) is None, "it would be another version"
    assert here.look(look._replace(pieces=None)) is None, "some of it has not come"
    assert files_below(here._stores[client.workspace.key].current) == before
    (client.folder / "b.py").write_text("newer")
    client.scanner.keep(client.scanner.scan().manifest)
    (client.folder / "b.py").write_text("newest")
    assert there.look(client.look("newest")) is None, "what it begins at was never there"
    assert [
        path.suffix
        for path in (here._stores[client.workspace.key].current.parent / "versions").iterdir()
    ].count("") == 1


def test_a_change_that_leads_elsewhere_is_refused(client: Client) -> None:
    host = _Host()
    client.bring(host)
    (client.folder / "a.py").write_text("new")
    look = client.look("new")
    assert look.change is not None
    for path in ("../a.py", "link/a.py", "/a.py"):
        with pytest.raises(ValueError, match="leads out of the workspace"):
            host.look(
                look._replace(
                    change=look.change._replace(files=[look.change.files[0]._replace(path=path)])
                )
            )


def test_a_host_that_shares_its_folder_with_another_one_was_behind_as_well(client: Client) -> None:
    first, second = _Host(), _Host()
    client.bring(first)
    (client.folder / "a.py").write_text("new")
    look = client.look("new")
    assert second.look(look._replace(id=look.change.base)) is not None  # type: ignore[union-attr]
    assert [host.look(look) for host in (first, second)] == [(False, []), (False, [])]
    assert [host.look(look) for host in (first, second)] == [(True, []), (True, [])]


def test_a_file_that_has_only_got_another_name_is_the_same_file_on_the_host(client: Client) -> None:
    host = _Host()
    client.bring(host)
    current = host._stores[client.workspace.key].current
    kept, copied = (current / "b.py").stat().st_ino, (current / "a.py").stat().st_ino
    (client.folder / "b.py").rename(client.folder / "pkg" / "renamed.py")
    (client.folder / "a.py").rename(client.folder / "pkg" / "other.py")
    # which one file can't have under one name alone
    (client.folder / "pkg" / "other.py").chmod(0o755)
    assert host.look(client.look()) is not None
    assert files_below(current) == files_below(client.folder)
    assert (current / "pkg" / "renamed.py").stat().st_ino == kept
    assert (current / "pkg" / "other.py").stat().st_ino != copied
