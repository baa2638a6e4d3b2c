"""Jobs: how the hosts of a program come to be, are found again by its next run, and go away.

A job is a description, such as ``ProcessJob({"trainers": 2})``. Its `state()` starts workers, or
finds those that an earlier run of the same description has left running, and gives a host mesh for
each name. `kill()` ends them.

    base/     what each kind of job is built on: `trait`, the life cycle; `contract` with workers
    local     `LocalJob`, this machine as it is; and scripts that run apart from the program that submits them
    process   `ProcessJob`, worker processes on this machine, which `watch` starts again
    slurm/    `SlurmJob`, nodes of a Slurm allocation
    ssh/      `SSHJob`, machines that ssh reaches
    kubernetes/  `KubernetesJob`, pods
    ray/      `RayJob`, nodes of a Ray cluster
    skypilot  `SkyPilotJob`, nodes of a cloud
    spmd      `SPMDJob`, a command of torchrun on hosts; `StoreJob`, the hosts of a running torchrun
    hosts     `hosts_from_config`, hosts that a file names
    worker_main  the program of a worker
    service_identity  names that launchers give workers

and work on jobs that run:

    current   the job that the command line works on; `overview` and `checkup` say how it is
    commands  `exec_command`: commands on hosts; `remote_shell`, a shell on one
    forward   `PortForwarder`, which reaches TCP ports of workers
    find_logs  the logs of a job, by what a person knows
    bounce    all workers anew, with the code as it is now

Only public names of the packages below are used here, so that a job of another kind can be written
anywhere.

Read `base.trait`, then `base.contract` and `process`.

Imports `_patterns`, `actor`, `job.base`, `job.ray`, `job.slurm`, `job.ssh`, `logs`, `programs`,
`spmd`, `sync`, `trust`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names
from ..errors import JobError

if TYPE_CHECKING:
    from .base.features import MeshAdminConfig, TelemetryConfig
    from .base.state import JobState
    from .base.trait import DEFAULT_JOB_PATH, JobTrait, job_load, job_loads
    from .commands import exec_command
    from .current import load_current_job, set_current_job
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "base.features": ("MeshAdminConfig", "TelemetryConfig"),
        "base.state": ("JobState",),
        "base.trait": ("DEFAULT_JOB_PATH", "JobTrait", "job_load", "job_loads"),
        "commands": ("exec_command",),
        "current": ("load_current_job", "set_current_job"),
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
    },
)

__all__ = [
    "DEFAULT_JOB_PATH", "SERVICE_PROC_IDS_ENV", "SERVICE_PROC_RANK_ENV", "JobError", "JobState", "JobTrait", "LocalJob",
    "MeshAdminConfig", "PortForwarder", "ProcessJob", "RayJob", "SSHJob", "SlurmJob", "TelemetryConfig",
    "deserialize_service_proc_ids", "exec_command", "hosts_from_config", "job_load", "job_loads", "load_current_job",
    "new_service_proc_id", "ranked_service_proc_id_from_env", "serialize_service_proc_ids", "service_proc_addr",
    "service_proc_addrs", "set_current_job", "shell",
]  # fmt: skip
