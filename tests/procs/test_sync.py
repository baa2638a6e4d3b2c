"""Workspaces on hosts: what is there after a sync, and that procs run it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import PATIENCE, wait_until
from helpers.workers import Cluster, attached_cluster
from monarch.actor import Actor, HostMesh, endpoint, this_host
from monarch.sync import SyncResult
from monarch.sync.push import _Push

pytestmark = pytest.mark.usefixtures("_process_test")


class Runner(Actor):
    """Runs code of the workspace, which the client has never imported."""

    @endpoint
    def evaluate(self, module: str, expression: str) -> Any:
        import importlib

        return eval(expression, {"m": importlib.import_module(module), "os": os, "sys": sys})

    @endpoint
    def sync(self, folder: str) -> str:
        """Bring a folder to this host."""
        return str(asyncio.run(this_host().sync_workspace(folder)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[Cluster]:
    """Two hosts with a store in common: they are one machine."""
    with attached_cluster(2, env={"MONARCH_SYNC_FOLDER": str(store)}) as found:
        yield found


@pytest.fixture
def hosts(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostMesh:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cluster.hosts


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / (name.replace("__in__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def sync(hosts: HostMesh, workspace: Any, auto_reload: bool = False) -> SyncResult:
    result = asyncio.run(hosts.sync_workspace(workspace, auto_reload=auto_reload))
    assert isinstance(result, SyncResult)
    return result


def run(hosts: HostMesh, module: str, expression: str) -> list[Any]:
    """What an expression gives in new procs, one on each host."""
    with hosts.spawn_procs() as procs:
        values = (
            procs.spawn("runner", Runner)
            .evaluate.call(module, expression)
            .get(timeout=PATIENCE)
            .values()
        )
        return list(values)


def test_new_procs_run_the_code_as_it_is_now(hosts: HostMesh, tmp_path: Path) -> None:
    project = write(
        tmp_path / "project",
        synced_a="VALUE = 1\n",
        pkg__in____init__="",
        pkg__in__synced_b="VALUE = 10\n",
    )
    first = sync(hosts, project)
    assert (first.files, first.hosts, first.behind, first.sent_files) == (3, 2, 2, 2), first
    assert run(hosts, "synced_a", "m.VALUE") == [1, 1]
    write(project, synced_a="VALUE = 2\n")
    second = sync(hosts, project)
    assert (second.sent_files, second.sent) == (1, 10)
    assert run(hosts, "synced_a", "m.VALUE") == [2, 2]
    assert run(hosts, "pkg.synced_b", "m.VALUE") == [10, 10]
    third = sync(hosts, project)
    assert (third.behind, third.sent) == (0, 0)
    assert "nothing has changed" in str(third)


def test_a_small_change_is_one_question_to_all_hosts(
    hosts: HostMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(tmp_path / "small", synced_small="VALUE = 1\n", synced_rest="VALUE = 5\n")
    sync(hosts, project)
    asked: list[str] = []
    begin = _Push._begin

    def note(self: Any, agents: Any, record: Any, seconds: float) -> Any:
        asked.append(type(record).__name__)
        return begin(self, agents, record, seconds)

    monkeypatch.setattr(_Push, "_begin", note)
    write(project, synced_small="VALUE = 22\n")
    # by another `Scanner` than the first one: it is remembered what was sent
    result = sync(hosts, project)
    assert asked == ["FindWorkspace"] and (result.behind, result.sent_files, result.sent) == (
        2,
        1,
        11,
    )
    assert run(hosts, "synced_small", "m.VALUE") == [22, 22]
    write(project, synced_small=f"VALUE = 333\nTEXT = {'x' * (2 << 20)!r}\n")
    assert sync(hosts, project).sent_files == 1
    assert asked[1:3] == ["FindWorkspace", "Offer"], (
        "what is large goes to those that say that they lack it"
    )
    assert run(hosts, "synced_small", "m.VALUE") == [333, 333]


def test_folders_of_the_path_lead_to_the_same_on_the_host(
    hosts: HostMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(tmp_path / "layout", src__in__synced_src="VALUE = 3\n")
    monkeypatch.syspath_prepend(str(project / "src"))
    sync(hosts, project)
    (path, second, where), _ = run(
        hosts, "synced_src", "(sys.path[0], sys.path[1], os.environ['WORKSPACE_DIR'])"
    )
    assert path == f"{where}/src" and second == where
    assert run(hosts, "synced_src", "m.__file__") == [f"{where}/src/synced_src.py"] * 2


def test_a_slice_gets_it_alone(hosts: HostMesh, tmp_path: Path) -> None:
    project = write(tmp_path / "slice", synced_slice="VALUE = 1\n")
    assert sync(hosts.slice(hosts=1), project).hosts == 1
    assert run(hosts.slice(hosts=1), "synced_slice", "m.VALUE") == [1]
    with hosts.slice(hosts=0).spawn_procs() as procs:
        failed = (
            procs.spawn("runner", Runner)
            .evaluate.call_one("synced_slice", "m.VALUE")
            .exception(timeout=PATIENCE)
        )
    assert isinstance(failed, ModuleNotFoundError)


def test_procs_that_run_take_the_new_code_on_request_and_actors_keep_what_they_hold(
    hosts: HostMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(
        tmp_path / "reload",
        synced_helper="STEP = 1\n",
        synced_actor=ACTOR.format(1),
        synced_other="X = 1\n",
    )
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    try:
        from synced_actor import Counter  # type: ignore[import-not-found]  # made above

        sync(hosts, project)
        with hosts.spawn_procs() as procs:
            counters = procs.spawn("counter", Counter)
            assert counters.step.call().get(timeout=PATIENCE).values() == [1, 1]
            write(project, synced_helper="STEP = 100\n")
            assert sync(hosts, project).reloads == []
            assert counters.step.call().get(timeout=PATIENCE).values() == [
                2,
                2,
            ], "nobody has asked for more"
            write(project, synced_actor=ACTOR.format(1000))
            result = sync(hosts, project, auto_reload=True)
            assert [each.reloaded for each in result.reloads] == [
                ["synced_helper", "synced_actor"]
            ] * 2
            assert [(each.objects, each.kept) for each in result.reloads] == [(1, [])] * 2
            assert "reloaded synced_helper, synced_actor, 1 object with it" in str(result)
            assert counters.step.call().get(timeout=PATIENCE).values() == [100002, 100002]
            assert sync(hosts, project, auto_reload=True).reloads == [], "once is enough"
            write(project, synced_helper="STEP = = 1\n")
            result = sync(hosts, project, auto_reload=True)
            assert [each.kept[0][0] for each in result.reloads] == ["synced_helper"] * 2
            assert "synced_helper runs its old code: SyntaxError" in str(result)
            assert counters.step.call().get(timeout=PATIENCE).values() == [200002, 200002]
    finally:
        for name in ("synced_actor", "synced_helper"):
            sys.modules.pop(name, None)


ACTOR = """
from monarch.actor import Actor, endpoint
from synced_helper import STEP

class Counter(Actor):
    def __init__(self):
        self.n = 0

    @endpoint
    def step(self):
        self.n += {} * STEP
        return self.n
"""


def test_two_clients_at_once_leave_one_of_both_and_each_is_told_so(
    hosts: HostMesh, tmp_path: Path, store: Path
) -> None:
    project = write(
        tmp_path / "both", **{f"synced_{index}": f"VALUE = {index}\n" * 50 for index in range(100)}
    )
    results: list[SyncResult] = []
    threads = [
        threading.Thread(target=lambda: results.append(sync(hosts, project))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [(result.files, result.hosts) for result in results] == [(100, 2)] * 3
    assert run(hosts, "synced_7", "m.VALUE") == [7, 7]
    (folder,) = store.glob("both-*")
    versions = folder / "versions"
    wait_until(
        lambda: sum(path.is_dir() for path in versions.iterdir()) <= 3,
        what="older versions to be removed",
    )


def test_an_actor_brings_a_folder_to_its_own_host(hosts: HostMesh, tmp_path: Path) -> None:
    project = write(tmp_path / "own", synced_own="VALUE = 9\n")
    one = hosts.slice(hosts=0)
    with one.spawn_procs() as procs:
        text = procs.spawn("runner", Runner).sync.call_one(str(project)).get(timeout=PATIENCE)
    assert "1 file, 10 bytes, on 1 host" in text
    assert run(one, "synced_own", "m.VALUE") == [9]


def test_what_is_no_folder_is_refused(hosts: HostMesh, tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="nowhere"):
        sync(hosts, tmp_path / "nowhere")
