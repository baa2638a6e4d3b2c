"""`sync_workspace(conda=True)`: an environment of this machine is on hosts, and works without
it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import PATIENCE
from helpers.wheels import make_wheel
from helpers.workers import Cluster, attached_cluster
from monarch.actor import Actor, HostMesh, endpoint
from monarch.environments import CondaEnvironment
from monarch.errors import EnvironmentFailed
from monarch.sync import SyncResult, Workspace

pytestmark = [pytest.mark.usefixtures("_process_test"), pytest.mark.timeout(180)]

PLACEHOLDER = 255  # bytes, as of conda's own packages


class Runner(Actor):
    """Runs in the environment, which the client is not in."""

    @endpoint
    def evaluate(self, *expressions: str) -> list[Any]:
        import importlib

        names = {
            "of": importlib.import_module,
            "os": os,
            "sys": sys,
            "run": subprocess.check_output,
            "Path": Path,
        }
        return [eval(each, names) for each in expressions]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts with a store in common: they are one machine."""
    store = str(tmp_path_factory.mktemp("store"))
    with attached_cluster(2, env={"MONARCH_SYNC_FOLDER": store}) as found:
        yield found


@pytest.fixture
def hosts(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostMesh:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return cluster.hosts


def make_environment(prefix: Path, projects: Path, placeholder: int = PLACEHOLDER) -> Path:
    """As conda makes one: an interpreter, and packages with the prefix in their files; two of them
    are editable.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    (packages,) = prefix.glob("lib/python3*/site-packages")
    make_wheel(packages, "tiny_one", "1.0")
    shutil.unpack_archive(packages / "tiny_one-1.0-py3-none-any.whl", packages, "zip")
    for name in ("tiny_path", "tiny_found"):
        source = projects / name / "src"
        source.mkdir(parents=True)
        (source / f"{name}.py").write_text(f"VALUE = {name!r}\n")
        (projects / name / ".gitignore").write_text("left_out\n")
        (projects / name / "left_out").write_text("")
        info = packages / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        origin = {"dir_info": {"editable": True}, "url": f"file://{projects / name}"}
        (info / "direct_url.json").write_text(json.dumps(origin))
    (packages / "__editable__.tiny_path-1.0.pth").write_text(f"{projects}/tiny_path/src\n")
    finder = f"MODULE = {f'{projects}/tiny_found/src/tiny_found.py'!r}\n" + FINDER
    (packages / "__editable___tiny_found_1_0_finder.py").write_text(finder)
    (packages / "__editable__.tiny_found-1.0.pth").write_text(
        "import __editable___tiny_found_1_0_finder as f; f.install()\n"
    )
    (prefix / "bin" / "tiny-tool").write_text(
        f"#!{prefix}/bin/python\nimport sys\nprint(sys.prefix)\n"
    )
    (prefix / "bin" / "tiny-tool").chmod(0o755)
    (prefix / "bin" / "gone").symlink_to("/nowhere/gone")
    (prefix / "bin" / "other-name").symlink_to("tiny-tool")
    (prefix / ".gitignore").write_text("*\n")  # as venv writes one: it counts for git alone
    (prefix / "pkgs").mkdir()
    (prefix / "pkgs" / "cached").write_text("")
    (prefix / "share").mkdir()
    (prefix / "share" / "text").write_text(f"{prefix}/share and {prefix}2")
    path = f"{prefix}/share:{prefix}\0".encode()
    path += bytes(2 * (placeholder - len(str(prefix))))
    (prefix / "share" / "binary").write_bytes(b"\x7fELF\0" + path + b"behind it\0")
    entry = {"prefix_placeholder": "_" * placeholder}
    found = [{**entry, "_path": f"share/{mode}", "file_mode": mode} for mode in ("text", "binary")]
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "tiny-1.0-0.json").write_text(
        json.dumps({"paths_data": {"paths": found}})
    )
    return prefix


FINDER = """
import importlib.util, sys

def install():
    sys.meta_path.append(sys.modules[__name__])

def find_spec(name, path=None, target=None):
    return importlib.util.spec_from_file_location(name, MODULE) if name == "tiny_found" else None
"""


def sync(hosts: HostMesh, workspace: Any) -> SyncResult:
    result = asyncio.run(hosts.sync_workspace(workspace, conda=True))
    assert isinstance(result, SyncResult) and result.environment is not None
    return result


def run(hosts: HostMesh, *expressions: str) -> list[Any]:
    """What expressions give in new procs, the same on each host."""
    with hosts.spawn_procs() as procs:
        answers = procs.spawn("runner", Runner).evaluate.call(*expressions).get(timeout=PATIENCE)
    first, *others = answers.values()
    assert all(each == first for each in others)
    return list(first)


def test_procs_start_in_the_environment_of_the_client(
    hosts: HostMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own,) = run(hosts.slice(hosts=0), "sys.prefix")
    prefix = make_environment(tmp_path / "conda" / "env", tmp_path / "projects")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "synced_code.py").write_text("import tiny_one\nVALUE = tiny_one.VALUE\n")
    monkeypatch.setenv("CONDA_PREFIX", str(prefix))
    result = sync(hosts, tmp_path / "code")
    environment = result.environment
    assert environment is not None and (result.files, environment.hosts, environment.behind) == (
        1,
        2,
        2,
    )
    assert "environment: " in str(result) and "left_out (ignored by .gitignore)" in str(environment)
    (tmp_path / "conda").rename(tmp_path / "gone")
    (tmp_path / "projects").rename(tmp_path / "projects_gone")

    folder, *values = run(
        hosts,
        "sys.prefix",
        "[of(each).VALUE for each in ('tiny_one', 'tiny_path', 'tiny_found', 'synced_code')]",
        "[of(each).__file__.partition('/__editable__.')[::2] for each in ('tiny_path',"
        " 'tiny_found')]",
        "os.environ['CONDA_PREFIX'], run(['tiny-tool'], text=True).strip()",
        "Path(sys.prefix, 'share', 'text').read_text()",
        "Path(sys.prefix, 'share', 'binary').read_bytes()",
        "os.path.exists(f'{sys.prefix}/pkgs')",
        "[os.readlink(f'{sys.prefix}/bin/{each}') for each in ('gone', 'other-name')]",
    )
    assert folder not in (own, str(prefix)) and "/environments/" in folder
    assert values[0] == ["1.0", "tiny_path", "tiny_found", "1.0"]
    assert values[1] == [(folder, f"{name}/src/{name}.py") for name in ("tiny_path", "tiny_found")]
    assert values[2] == (folder, folder)
    assert values[3] == f"{folder}/share and {prefix}2"
    room = 2 * (PLACEHOLDER - len(str(prefix))) + len(f"{prefix}/share:{prefix}") + 1
    assert (
        values[4]
        == b"\x7fELF\0" + f"{folder}/share:{folder}".encode().ljust(room, b"\0") + b"behind it\0"
    )
    assert values[5] is False
    assert values[6] == ["/nowhere/gone", "tiny-tool"]

    (tmp_path / "gone").rename(tmp_path / "conda")
    (tmp_path / "projects_gone").rename(tmp_path / "projects")
    again = sync(hosts, tmp_path / "code").environment
    assert again is not None and (again.behind, again.sent) == (0, 0)
    (tmp_path / "projects" / "tiny_path" / "src" / "tiny_path.py").write_text("VALUE = 2\n")
    edited = sync(hosts, Workspace([], CondaEnvironment(prefix))).environment
    assert edited is not None and (edited.behind, edited.sent) == (2, 10)
    assert run(hosts, "of('tiny_path').VALUE", f"sys.prefix == {folder!r}") == [2, False]
    assert run(hosts.with_python_executable(f"{folder}/bin/python"), "of('tiny_path').VALUE") == [
        "tiny_path"
    ]


def test_an_environment_that_can_not_be_mirrored_is_said(
    hosts: HostMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(RuntimeError, match="no conda environment is active"):
        sync(hosts, tmp_path)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"nowhere.*there is no such folder"):
        sync(hosts, tmp_path)
    with pytest.raises(TypeError, match="CondaEnvironment, got 'base'"):
        sync(hosts, Workspace([tmp_path], "base"))
    with pytest.raises(EnvironmentFailed, match="there is no folder conda-meta in it"):
        sync(hosts, Workspace([], CondaEnvironment(tmp_path)))
    short = tempfile.mkdtemp()
    request.addfinalizer(lambda: shutil.rmtree(short))
    prefix = make_environment(Path(short, "env"), tmp_path / "projects", len(short) + 8)
    with pytest.raises(
        EnvironmentFailed, match=r"is not on 2 of 2 hosts: share/binary .* has room for a prefix of"
    ):
        sync(hosts, Workspace([], CondaEnvironment(prefix)))
    (prefix / "conda-meta" / "tiny-1.0-0.json").write_text("[]")
    with pytest.raises(
        EnvironmentFailed,
        match=r"conda-meta/tiny-1\.0-0\.json of the environment is none of conda's",
    ):
        sync(hosts, Workspace([], CondaEnvironment(prefix)))
