"""The nodes of a Slurm job that runs already, in the place of one that is submitted."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ..._ours import APPEND, opened
from ...errors import JobError
from ..base import processes
from .commands import ask

_CURRENT = "current"

logger = logging.getLogger("monarch.job")


def check_allocation(wanted: str | int | None) -> str | None:
    """Check the id of a job, which is a word of commands; a ValueError if it is none."""
    if wanted is not None and not re.fullmatch(rf"{_CURRENT}|\d[\d_+.]*", str(wanted)):
        raise ValueError(f"allocation is the id of a Slurm job, or {_CURRENT!r}; got {wanted!r}")
    return None if wanted is None else str(wanted)


def find_allocation(wanted: str | None, meshes: Mapping[str, int], has_own_resources: bool) -> str:
    """The id of the running job that provides the nodes; empty if a job is to be submitted.

    Args:
        wanted: Its id, or ``"current"``.
        meshes: Name to number of nodes.
        has_own_resources: Whether meshes have resources of their own.

    Raises:
        JobError: There is none, it has too few nodes, or resources were asked for.
    """
    if wanted is None:
        if "SLURM_JOB_ID" in os.environ:
            logger.info(
                'a new job is submitted; SlurmJob(..., allocation="current") uses the nodes of'
                " this one"
            )
        return ""
    if wanted == _CURRENT:
        if "SLURM_JOB_ID" not in os.environ:
            raise JobError(
                'allocation="current": this program runs in no Slurm job; salloc or srun starts one'
            )
        wanted = os.environ["SLURM_JOB_ID"]
    nodes, needed = ask(wanted).nodes, sum(meshes.values())
    if nodes < needed:
        raise JobError(f"Slurm job {wanted} has {nodes} nodes, and {needed} are needed: {meshes}")
    if has_own_resources:
        raise JobError(
            "resources of single meshes are for jobs that are submitted; an allocation has what it"
            " has"
        )
    return wanted


def run_here(script: str, folder: Path, tag: str) -> None:
    """Run the script of a job here, apart from this program.

    Args:
        script: Its text.
        folder: For its output.
        tag: By which `processes.end` finds it.
    """
    with opened(folder) as own, open(own.open("srun.log", APPEND), "ab") as log:
        subprocess.Popen(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, processes.TAG: tag},
            start_new_session=True,
        )
