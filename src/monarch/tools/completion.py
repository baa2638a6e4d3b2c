"""Completion in the shell: names that are known here without asking any process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import MonarchError
from ..job import current
from ..job.trait import DEFAULT_JOB_PATH, job_load


def context_names(incomplete: str) -> list[str]:
    """Contexts of this folder."""
    return [name for name in current.contexts() if name.startswith(incomplete)]


def mesh_names(incomplete: str) -> list[str]:
    """Host meshes of the job of the active context, where it names them without being asked."""
    with suppress(MonarchError, OSError):
        return [
            name
            for name in getattr(job_load(Path(DEFAULT_JOB_PATH)), "_meshes", ())
            if name.startswith(incomplete)
        ]
    return []
