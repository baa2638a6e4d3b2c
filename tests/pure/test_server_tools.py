"""Names of `monarch.tools` that describe servers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monarch.job import ProcessJob, SlurmJob
from monarch.tools.commands import create, info, kill
from monarch.tools.config import Config, Workspace
from monarch.tools.config.defaults import config
from monarch.tools.config.environment import CondaEnvironment
from monarch.tools.mesh_spec import (
    AppState,
    MeshSpec,
    ServerSpec,
    mesh_spec_from_metadata,
    mesh_spec_from_str,
    tag_as_metadata,
)
from monarch.tools.network import AddrType, get_ipaddr, get_sockaddr


def role(name: str, num_replicas: int, **more: Any) -> Any:
    """As a ``Role`` of torchx."""
    return SimpleNamespace(
        **{"name": name, "num_replicas": num_replicas, "env": {}, "image": "", **more}
    )


def appdef(*roles: Any) -> Any:
    """As an ``AppDef`` of torchx."""
    return SimpleNamespace(name="app", roles=list(roles), metadata={})


def test_a_mesh_spec_is_read_from_text_and_from_the_metadata_of_an_application() -> None:
    spec = mesh_spec_from_str("trainers:2:gpu.large")
    assert (spec.name, spec.num_hosts, spec.host_type, spec.gpus) == (
        "trainers",
        2,
        "gpu.large",
        -1,
    )
    spec.gpus = 8
    app = appdef(
        role("trainers", 2, image="img"), role("others", 1, resource=SimpleNamespace(gpu=4))
    )
    tag_as_metadata(spec, app)
    assert set(map(type, app.metadata.values())) == {str}
    assert mesh_spec_from_metadata(app, "trainers") == MeshSpec(
        "trainers", 2, "gpu.large", 8, image="img"
    )
    assert mesh_spec_from_metadata(app, "others") == MeshSpec("others", 1, gpus=4)
    assert mesh_spec_from_metadata(app, "none") is None
    for wrong in ("trainers", "trainers:2", ":2:x", "trainers:two:x", "trainers:2:x:y"):
        with pytest.raises(ValueError, match="NAME:NUM_HOSTS:HOST_TYPE"):
            mesh_spec_from_str(wrong)


@pytest.mark.parametrize("env", [{"A B": "x"}, {"A": 1}, {"": "x"}])
def test_variables_that_no_shell_can_set_are_refused(env: Any) -> None:
    with pytest.raises(ValueError, match="has a name of the shell and a string, got"):
        create(
            Config(scheduler="slurm", appdef=appdef(role("trainers", 1, env=env)), dryrun=True),
            "run",
        )


def test_two_roles_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two roles have the same name: trainers, trainers"):
        create(
            Config(
                scheduler="slurm",
                appdef=appdef(role("trainers", 1), role("trainers", 2)),
                dryrun=True,
            ),
            "run",
        )


def test_a_server_spec_finds_its_meshes_and_is_json() -> None:
    mesh = MeshSpec("trainers", 1, hostnames=["node7"], state=AppState.RUNNING)
    server = ServerSpec("run", "slurm", AppState.RUNNING, [mesh, MeshSpec("empty", 1)])
    assert (
        server.is_running
        and server.host0("trainers") == "node7"
        and server.server_handle == "slurm:///run"
    )
    told = json.loads(server.to_json())
    assert (
        told["state"] == told["meshes"][0]["state"] == "RUNNING"
        and told["server_handle"] == "slurm:///run"
    )
    with pytest.raises(ValueError, match="no mesh 'x'; it has: trainers, empty"):
        server.get_mesh_spec("x")
    with pytest.raises(ValueError, match="no hosts yet"):
        server.host0("empty")


def test_each_scheduler_is_a_job_and_what_can_not_be_asked_for_is_said(tmp_path: Path) -> None:
    app = appdef(role("trainers", 2, env={"A": "b c"}), role("others", 1, env={"A": "b c"}))
    local = create(Config("local_cwd", appdef=app, dryrun=True), "run")
    assert (
        isinstance(local, ProcessJob)
        and local._meshes == {"trainers": 2, "others": 1}
        and not local.active
    )
    slurm = create(
        Config("slurm", {"partition": "gpu", "time": "1:00:00"}, appdef=app, dryrun=True), "run"
    )
    assert (
        isinstance(slurm, SlurmJob)
        and "gpu" in repr(vars(slurm))
        and "export A='b c'" in repr(vars(slurm))
    )
    with pytest.raises(NotImplementedError, match="no job for 'local_docker'"):
        create(Config("local_docker", appdef=app), "run")
    with pytest.raises(
        NotImplementedError, match=r"Config.scheduler is not set: it is one of local_cwd"
    ):
        create(Config(appdef=app), "run")
    with pytest.raises(ValueError, match="an object with roles"):
        create(config(workspace=tmp_path), "run")
    with pytest.raises(ValueError, match="A is 'b c' and, of 'third', 'd'"):
        create(
            Config("local_cwd", appdef=appdef(*app.roles, role("third", 1, env={"A": "d"}))), "run"
        )
    with pytest.raises(ValueError, match="SCHEDULER:///NAME"):
        info("run")


def test_what_does_not_run_has_no_info_and_is_killed_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_HOME", str(tmp_path))
    assert info("local_cwd:///none") is None
    kill("local_cwd:///none")


def test_the_variables_of_a_workspace_are_set_on_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = appdef(role("trainers", 1, env={"PYTHONPATH": "/mine"}))
    Workspace({tmp_path: "src"}).set_env_vars(app)
    env = app.roles[0].env
    assert env["PYTHONPATH"] == "${img_root}/workspace/src:/mine" and set(env) == {
        "PYTHONPATH",
        "WORKSPACE_DIR",
        "CONDA_DIR",
    }
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    assert CondaEnvironment().conda_prefix == tmp_path
    monkeypatch.delenv("CONDA_PREFIX")
    with pytest.raises(RuntimeError, match="no conda environment is active"):
        CondaEnvironment()
    with pytest.raises(NotADirectoryError):
        CondaEnvironment(tmp_path / "none")


def test_the_parser_of_before_passes_arguments_on_to_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("typer")
    from monarch.tools.cli import get_parser

    args = get_parser().parse_args(["list", "--help"])
    with pytest.raises(SystemExit) as ended:
        args.func(args)
    assert ended.value.code == 0 and "running programs" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["monarch", "monarch.tools", "monarch.tools.cli"])
def test_the_command_is_a_module_as_well(module: str) -> None:
    pytest.importorskip("typer")
    asked = [sys.executable, "-m", module, "list", "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "running programs" in done.stdout


def test_a_link_local_address_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(10, 1, 6, "", (host, 80, 0, 2)) for host in ("fe80::1", "fd00::7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked: found)
    assert get_ipaddr("node1", 80) == "fd00::7"
    found.pop()
    with pytest.raises(RuntimeError, match="'node1' could not be resolved .*link-local"):
        get_ipaddr("node1", 80)


def test_addresses_have_brackets_before_ports_and_wrong_names_are_refused() -> None:
    assert get_ipaddr("127.0.0.1", 80) == get_ipaddr("127.0.0.1", 80, AddrType.IPv4) == "127.0.0.1"
    assert get_ipaddr("::1", 80) == get_ipaddr("::1", 80, AddrType.IPv6) == "::1"
    assert (get_sockaddr("127.0.0.1", 80), get_sockaddr("::1", 8080)) == (
        "127.0.0.1:80",
        "[::1]:8080",
    )
    with pytest.raises(RuntimeError, match=r"'::1' could not be resolved \(IPv4\)"):
        get_ipaddr("::1", 80, AddrType.IPv4)
