"""Names of programs for Meta's own cluster.

What they did, jobs do here, on any scheduler: `monarch.job`.
"""

from __future__ import annotations

from typing import Any, NoReturn


def _not_here(name: str, instead: str) -> NoReturn:
    raise NotImplementedError(
        f"monarch.notebook.{name} works on Meta's own cluster only; use {instead} instead"
    )


def reserve_torchx(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    _not_here(
        "reserve_torchx", "a job of monarch.job, such as SlurmJob or ProcessJob, with job.apply()"
    )


mast_reserve = reserve_torchx
"""As `monarch` itself calls it."""


def mast_mesh(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    _not_here("mast_mesh", "job.state() of a job of monarch.job, whose hosts spawn procs")


def connect(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    _not_here("connect", "monarch.job.job_load(), or monarch.actor.attach_to_workers(...)")


def list_mast_jobs(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    _not_here(
        "list_mast_jobs",
        "the scheduler's own commands, and monarch.job.load_current_job() for the last one",
    )


def cleanup(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    _not_here("cleanup", "job.kill() of the job")


__all__ = ["cleanup", "connect", "list_mast_jobs", "mast_mesh", "mast_reserve", "reserve_torchx"]
