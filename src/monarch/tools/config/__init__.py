"""Descriptions of a server of `monarch.tools.commands`.

Read `workspace`.

Imports `environments`, `sync`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .workspace import Workspace

NOT_SET = "__NOT_SET__"


@dataclass
class Config:
    """A server.

    Attributes:
        scheduler: Who gives the hosts: ``local_cwd`` (worker processes on this machine), ``slurm``,
            ``kubernetes``.
        scheduler_args: Arguments of the job that asks for them: of `SlurmJob`, of `KubernetesJob`.
            ``time`` is that of `SlurmJob`'s ``time_limit``.
        workspace: Folders of this machine that `get_or_create` brings to the hosts.
        dryrun: Have `create` return the job, and start nothing.
        appdef: An ``AppDef`` of torchx, or what looks like one: each role is a mesh, with its name,
            ``num_replicas``, ``env`` and, on Kubernetes, ``image``. Workers are started as by jobs:
            ``entrypoint`` and ``args`` do not run.
    """

    scheduler: str = NOT_SET
    scheduler_args: dict[str, Any] = field(default_factory=dict)
    workspace: Workspace = field(default_factory=Workspace.null)
    dryrun: bool = False
    appdef: Any = None


__all__ = ["NOT_SET", "Config", "Workspace"]
