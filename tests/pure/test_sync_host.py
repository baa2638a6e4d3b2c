"""What an agent knows of workspaces: which procs lag behind, and where new ones import from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from monarch._core.plane import HostedProc, ProcAddress
from monarch.sync.host import Lagging, Reloaded, _Host
from monarch.sync.manifest import File, Manifest
from monarch.sync.store import Store


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
    host._activate(Store(base, key), key, {f"/client/{key}": ""}, Manifest(files, {}, {}))


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


def test_modules_of_a_workspace_are_known_by_their_names_at_any_depth(host: _Host, tmp_path: Path) -> None:
    activate(host, tmp_path, "one", "2", "top.py", "src/pkg/__init__.py", "src/pkg/inner.py", "data.txt", "__init__.py")
    active = host._active["one"]
    assert all(map(active.has_module, ("top", "pkg", "pkg.sub.deep", "inner")))
    assert not any(map(active.has_module, ("src", "data", "torch", "")))
