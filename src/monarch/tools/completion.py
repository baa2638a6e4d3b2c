"""Completion in the shell: names that are known here without asking any process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import MonarchError
from ..job import current
from ..job.base.trait import DEFAULT_JOB_PATH, JobTrait, job_load


def context_names(incomplete: str) -> list[str]:
    """Contexts of this folder."""
    return [name for name in current.contexts() if name.startswith(incomplete)]


def mesh_names(incomplete: str) -> list[str]:
    """Host meshes of the job of the active context, where it names them without being asked."""
    with suppress(MonarchError, OSError):
        saved = job_load(Path(DEFAULT_JOB_PATH))
        return [name for name in meshes_of(saved) if name.startswith(incomplete)]
    return []


def meshes_of(described: JobTrait) -> list[str]:
    """Names of its host meshes, where a job has them without being started."""
    return list(getattr(described, "_meshes", ()))
