"""Jobs: how the hosts of a program come to be, are found again by its next run, and go away.

A job is a description, such as ``ProcessJob({"trainers": 2})``. Its `state()` starts workers, or
finds those that an earlier run of the same description has left running, and gives a host mesh for
each name. `kill()` ends them.

    trait     `JobTrait`: the life cycle, the same for every way to get machines
    cache     the file through which the next run finds a running job
    state     `JobState`: the host meshes of a running job
    local     `LocalJob`, this machine as it is; and scripts that run apart from the program that submits them
    contract  what every job with workers has with them, wherever they run: rank, address, lifeline
    worker_main  the program of a worker; `worker_spec` is what it is told
    process   `ProcessJob`, worker processes on this machine; with `launch`, `processes` and `watch`
    slurm/    `SlurmJob`, nodes of a Slurm allocation
    ssh/      `SSHJob`, machines that ssh reaches
    kubernetes/  `KubernetesJob`, pods
    ray/      `RayJob`, nodes of a Ray cluster
    skypilot  `SkyPilotJob`, nodes of a cloud
    hosts     `hosts_from_config`, hosts that a file names
    logs      the folder of a job's logs; `find_logs` finds it by what a person knows
    telemetry  who can be asked about a job, and the file of its run
    commands  `exec_command`: commands on hosts; `shell`, a shell on one
    forward   `PortForwarder`, which reaches TCP ports of workers
    current   the job that the command line works on
    service_identity  names that launchers give workers
    spmd      `SPMDJob`, a command of torchrun on hosts; `StoreJob`, the hosts of a running torchrun

Only public names of the packages below are used here, so that a job of another kind can be written
anywhere.

Read `trait`, then `contract` and `process`.

Imports `_patterns`, `actor`, `admin`, `control`, `job.ray`, `job.slurm`, `job.ssh`, `logs`,
`mounts`, `programs`, `spmd`, `sync`, `telemetry`, `trust`, `why`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names
from ..errors import JobError

if TYPE_CHECKING:
    from .commands import exec_command
    from .current import load_current_job, set_current_job
    from .features import MeshAdminConfig, TelemetryConfig
    from .forward import PortForwarder
    from .hosts import hosts_from_config
    from .local import LocalJob
    from .process import ProcessJob
    from .ray.job import RayJob
    from .remote_shell import shell
    from .service_identity import (
        SERVICE_PROC_IDS_ENV,
        SERVICE_PROC_RANK_ENV,
        deserialize_service_proc_ids,
        new_service_proc_id,
        ranked_service_proc_id_from_env,
        serialize_service_proc_ids,
        service_proc_addr,
        service_proc_addrs,
    )
    from .slurm.job import SlurmJob
    from .ssh.job import SSHJob
    from .state import JobState
    from .trait import DEFAULT_JOB_PATH, JobTrait, job_load, job_loads

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "commands": ("exec_command",),
        "current": ("load_current_job", "set_current_job"),
        "features": ("MeshAdminConfig", "TelemetryConfig"),
        "forward": ("PortForwarder",),
        "hosts": ("hosts_from_config",),
        "local": ("LocalJob",),
        "process": ("ProcessJob",),
        "ray.job": ("RayJob",),
        "service_identity": (
            "SERVICE_PROC_IDS_ENV",
            "SERVICE_PROC_RANK_ENV",
            "deserialize_service_proc_ids",
            "new_service_proc_id",
            "ranked_service_proc_id_from_env",
            "serialize_service_proc_ids",
            "service_proc_addr",
            "service_proc_addrs",
        ),
        "remote_shell": ("shell",),
        "slurm.job": ("SlurmJob",),
        "ssh.job": ("SSHJob",),
        "state": ("JobState",),
        "trait": ("DEFAULT_JOB_PATH", "JobTrait", "job_load", "job_loads"),
    },
)

__all__ = [
    "DEFAULT_JOB_PATH", "SERVICE_PROC_IDS_ENV", "SERVICE_PROC_RANK_ENV", "JobError", "JobState", "JobTrait", "LocalJob",
    "MeshAdminConfig", "PortForwarder", "ProcessJob", "RayJob", "SSHJob", "SlurmJob", "TelemetryConfig",
    "deserialize_service_proc_ids", "exec_command", "hosts_from_config", "job_load", "job_loads", "load_current_job",
    "new_service_proc_id", "ranked_service_proc_id_from_env", "serialize_service_proc_ids", "service_proc_addr",
    "service_proc_addrs", "set_current_job", "shell",
]  # fmt: skip
