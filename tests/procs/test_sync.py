"""Workspaces on hosts: what is there after a sync, and that procs run it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import PATIENCE
from helpers.workers import Cluster, attached_cluster
from monarch.actor import Actor, HostMesh, endpoint
from monarch.sync import SyncResult

pytestmark = pytest.mark.usefixtures("_process_test")


class Runner(Actor):
    """Runs code of the workspace, which the client has never imported."""

    @endpoint
    def evaluate(self, module: str, expression: str) -> Any:
        import importlib

        return eval(expression, {"m": importlib.import_module(module), "os": os})


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two hosts with a store in common: they are one machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with attached_cluster(2, env={"MONARCH_SYNC_FOLDER": str(tmp_path / "store")}) as found:
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write(folder, {"synced_a.py": "VALUE = 1\n", "pkg/__init__.py": "", "pkg/synced_b.py": "VALUE = 10\n"})
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def sync(hosts: HostMesh, workspace: Any, auto_reload: bool = False) -> SyncResult:
    result = asyncio.run(hosts.sync_workspace(workspace, auto_reload=auto_reload))
    assert isinstance(result, SyncResult)
    return result


def run(hosts: HostMesh, module: str, expression: str) -> list[Any]:
    """What an expression gives in new procs, one on each host."""
    with hosts.spawn_procs() as procs:
        values = procs.spawn("runner", Runner).evaluate.call(module, expression).get(timeout=PATIENCE).values()
        return list(values)


def test_new_procs_run_the_code_as_it_is_now(cluster: Cluster, project: Path) -> None:
    first = sync(cluster.hosts, project)
    assert (first.files, first.hosts, first.behind, first.sent_files) == (3, 2, 2, 2), first
    assert run(cluster.hosts, "synced_a", "m.VALUE") == [1, 1]
    (project / "synced_a.py").write_text("VALUE = 2\n")
    second = sync(cluster.hosts, project)
    assert (second.sent_files, second.sent) == (1, 10)
    assert run(cluster.hosts, "synced_a", "m.VALUE") == [2, 2]
    assert run(cluster.hosts, "pkg.synced_b", "m.VALUE") == [10, 10]
    third = sync(cluster.hosts, project)
    assert (third.behind, third.sent) == (0, 0)
    assert "nothing has changed" in str(third)
