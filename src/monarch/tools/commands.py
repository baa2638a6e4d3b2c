"""Servers by name, as in Monarch 0.7: hosts that a program starts once, and that others find again.

A server is a job of `monarch.job`, saved below `MONARCH_HOME` by scheduler and name; `job_of` gives
it, and so its host meshes. An application of torchx says which hosts; any object with the same
attributes will do, so torchx need not be installed.

The functions of `on_job` are here as well: the command line's, on the job of the active context.

What ends the waits: `server_ready` looks again until the hosts are there or the job has ended; what
the jobs do ends by their own limits.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, cast

from .._lazy import lazy_names
from ..errors import JobError
from ..job import JobTrait, ProcessJob, SlurmJob, job_load
from ..job import bounce as anew
from ..job import load_current_job as load_current_job
from ..job.base.contract import WorkersJob
from ..job.kubernetes import ImageSpec, KubernetesJob
from .config import NOT_SET, Config
from .mesh_spec import AppState, MeshSpec, ServerSpec, mesh_spec_from_metadata
from .utils import MONARCH_HOME

# the words of the command line need typer, which the rest does without
_ON_JOB = (
    "apply_job context_create context_ls context_rm context_use debug exec_on_job shell_on_job"
)
__getattr__, __dir__ = lazy_names(__name__, {".on_job": _ON_JOB.split()})

_HANDLE = re.compile(r"(?P<scheduler>\w+)://(?P<session>[^/]*)/(?P<name>\w[\w.-]*)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOCAL = ("local", "local_cwd")
_SCHEDULERS = ("local_cwd", "slurm", "kubernetes")
_INTERVAL = timedelta(seconds=5)


def create(config: Config, name: str) -> str | JobTrait:
    """Start a server.

    Args:
        config: What of; `appdef` must be set.
        name: Its name, for this user and scheduler.

    Returns:
        Its handle, ``slurm:///name``; with `dryrun`, the job that would run.

    Raises:
        JobError: One of that name runs and has other hosts, or it can't be started.
        NotImplementedError: There is no job for the scheduler.
        ValueError: A name is not usable; or roles differ in their variables, which is for the hosts
            of a job the same.
    """
    handle = f"{config.scheduler}:///{name}"
    path = _path(handle)
    job = _job(config, name)
    if config.dryrun:
        return job
    job._find_or_start(path)
    return handle


def job_of(server_handle: str) -> JobTrait:
    """The job that a server is: ``job_of(handle).state(None)`` has its host meshes.

    Raises:
        JobError: There is no such server.
    """
    path = _path(server_handle)
    if not path.exists():
        raise JobError(f"there is no server {server_handle!r}: {path} does not exist")
    return job_load(path)


def info(server_handle: str) -> ServerSpec | None:
    """The description of a server; None if there is none, or it has ended.

    Its state is FAILED if hosts are lost that are not replaced.
    """
    path = _path(server_handle)
    if not path.exists():
        return None
    job = job_load(path)
    if not job.active or not job._is_running():
        return None
    scheduler, _, name = server_handle.partition(":///")
    reported = cast("WorkersJob", job)._reported()
    lost = cast("WorkersJob", job)._lost_hosts(reported)
    described, state = _described(job), AppState.RUNNING
    hostnames = _hostnames(
        {host: address for host, address in reported.items() if host not in lost}
    )
    for mesh in described:
        mesh.hostnames = hostnames.get(mesh.name, [])
        if len(mesh.hostnames) < mesh.num_hosts:
            state = AppState.PENDING
    if lost and not isinstance(job, KubernetesJob):  # pods come again by themselves
        state = AppState.FAILED
    for mesh in described:
        mesh.state = state
    return ServerSpec(name, scheduler, state, described)


async def server_ready(
    server_handle: str, check_interval: timedelta = _INTERVAL
) -> ServerSpec | None:
    """Wait until all hosts of a server are there.

    Args:
        server_handle: Which.
        check_interval: How long to wait between two looks.

    Returns:
        Its specification, with state RUNNING, or FAILED if hosts are lost; None if there is none,
        or it has ended.
    """
    while True:
        found = await asyncio.to_thread(info, server_handle)
        if found is None or found.state != AppState.PENDING:
            return found
        await asyncio.sleep(check_interval.total_seconds())


async def get_or_create(
    name: str, config: Config, check_interval: timedelta = _INTERVAL, force_restart: bool = False
) -> ServerSpec:
    """The server of a name, once all of its hosts are there; it is started, unless it runs.

    Args:
        name: Its name.
        config: As for `create`. The folders of its `workspace` are brought to the hosts.
        check_interval: How long to wait between two looks.
        force_restart: End it first, if it runs.

    Raises:
        JobError: One of that name runs and has other hosts; or it has ended before all of its hosts
            were there, or lost some.
    """
    handle = f"{config.scheduler}:///{name}"
    if force_restart:
        await kill_and_confirm(handle)
    await asyncio.to_thread(create, config, name)
    found = await server_ready(handle, check_interval)
    if found is None:
        raise JobError(f"server {handle!r} has ended before all of its hosts were there")
    if not found.is_running:
        there = ", ".join(
            f"{len(mesh.hostnames)} of {mesh.num_hosts} in {mesh.name}" for mesh in found.meshes
        )
        raise JobError(
            f"server {handle!r} has lost hosts, {there} are left: force_restart=True starts it anew"
        )
    if config.workspace.dirs:
        await asyncio.to_thread(_sync, handle, config)
    return found


def kill(server_handle: str) -> None:
    """End a server. Without effect if there is none."""
    path = _path(server_handle)
    if path.exists():
        job_load(path).kill()


async def kill_and_confirm(server_handle: str, timeout_after_kill: int = 300) -> None:
    """End a server, and wait until it is gone.

    Raises:
        TimeoutError: It is still there after so many seconds.
    """
    await asyncio.to_thread(kill, server_handle)
    end = time.monotonic() + timeout_after_kill
    while await asyncio.to_thread(info, server_handle) is not None:
        if time.monotonic() > end:
            raise TimeoutError(
                f"{server_handle!r} is still there {timeout_after_kill} s after it was killed"
            )
        await asyncio.sleep(1)


def bounce(server_handle: str) -> None:
    """Start the workers of a server anew, on the same hosts; what runs there ends.

    Raises:
        JobError: There is no such server, or it did not come up again.
    """
    anew.bounce(job_of(server_handle))


def stop(server_handle: str) -> NoReturn:
    """Raises NotImplementedError, as in Monarch 0.7, and says what to use."""
    raise NotImplementedError(
        f"workers can't be ended while the job stays: bounce({server_handle!r}) ends what runs, and"
        " starts them anew; kill ends all"
    )


def torchx_runner() -> NoReturn:
    """Raises NotImplementedError: nothing here runs torchx."""
    raise NotImplementedError(
        "there is no runner of torchx here: create, info, kill work on jobs of monarch.job; see"
        " job_of(handle)"
    )


def _path(server_handle: str) -> Path:
    found = _HANDLE.fullmatch(server_handle)
    if found is None:
        raise ValueError(
            "a server is given as SCHEDULER:///NAME, such as slurm:///training; got"
            f" {server_handle!r}"
        )
    return MONARCH_HOME("servers", found["scheduler"], found["name"], "job.pkl")


def _job(config: Config, name: str) -> JobTrait:
    roles = getattr(config.appdef, "roles", None)
    if not roles:
        raise ValueError(
            "Config.appdef says which hosts: an object with roles, such as an AppDef; got"
            f" {config.appdef!r}"
        )
    described = [
        cast("MeshSpec", mesh_spec_from_metadata(config.appdef, role.name)) for role in roles
    ]
    meshes = {mesh.name: mesh.num_hosts for mesh in described}
    if len(meshes) < len(described):
        raise ValueError(
            f"two roles have the same name: {', '.join(mesh.name for mesh in described)}"
        )
    args, env = dict(config.scheduler_args), _env(roles)
    job: JobTrait
    if config.scheduler in _LOCAL:
        if args:
            raise ValueError(f"{config.scheduler} takes no scheduler_args, got {args}")
        job = ProcessJob(meshes, env=env)
    elif config.scheduler == "slurm":
        if "time" in args:
            args["time_limit"] = args.pop("time")
        exports = [f"export {key}={shlex.quote(value)}" for key, value in env.items()]
        job = SlurmJob(
            meshes, **{"job_name": name, **args, "setup": [*exports, *args.get("setup", ())]}
        )
    elif config.scheduler == "kubernetes":
        job = _kubernetes(described, args, env)
    else:
        what = f"there is no job for {config.scheduler!r}"
        if config.scheduler == NOT_SET:
            what = "Config.scheduler is not set"
        raise NotImplementedError(
            f"{what}: it is one of {', '.join(_SCHEDULERS)}; or use a job of monarch.job"
        )
    job._served = described  # type: ignore[attr-defined]  # kept with the job, for `info`
    return job


def _kubernetes(
    described: list[MeshSpec], args: Mapping[str, Any], env: Mapping[str, str]
) -> JobTrait:
    if env:
        raise ValueError(
            "variables of pods are part of a pod template, which a KubernetesJob takes; got"
            f" {sorted(env)}"
        )
    job = KubernetesJob(**args)
    for mesh in described:
        job.add_mesh(mesh.name, mesh.num_hosts, image_spec=_image(mesh), port=mesh.port)
    return job


def _image(mesh: MeshSpec) -> Any:
    return ImageSpec(mesh.image, {"nvidia.com/gpu": mesh.gpus} if mesh.gpus > 0 else None)


def _env(roles: list[Any]) -> dict[str, str]:
    env: dict[str, str] = {}
    for role in roles:
        for key, value in (getattr(role, "env", None) or {}).items():
            if (
                not isinstance(key, str)
                or not _VARIABLE.fullmatch(key)
                or not isinstance(value, str)
            ):
                raise ValueError(
                    f"a variable of {role.name!r} has a name of the shell and a string, got"
                    f" {key!r}: {value!r}"
                )
            # paths in an image are set by a sync
            if "${img_root}" not in value and env.setdefault(key, value) != value:
                raise ValueError(
                    f"hosts of a job have the same variables: {key} is {env[key]!r} and, of"
                    f" {role.name!r}, {value!r}"
                )
    return env


def _described(job: JobTrait) -> list[MeshSpec]:
    described: list[MeshSpec] = job._served  # type: ignore[attr-defined]
    return described


def _hostnames(reported: Mapping[tuple[str, int], str]) -> dict[str, list[str]]:
    """The machines that are there, by mesh."""
    found: dict[str, list[str]] = {}
    for (mesh, _), address in sorted(reported.items()):
        scheme, _, where = address.partition("://")
        found.setdefault(mesh, []).append(
            where.rpartition(":")[0].strip("[]") if scheme == "tcp" else "localhost"
        )
    return found


def _sync(handle: str, config: Config) -> None:
    job = job_of(handle)
    job.state(None)
    job.sync(config.workspace)
