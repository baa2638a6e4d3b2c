"""Defaults of `Config`."""

from __future__ import annotations

from typing import Any, NoReturn

from . import Config, Workspace


def config(scheduler: str | None = None, workspace: Any = None) -> Config:
    """A `Config` for a scheduler, by default this machine, with a workspace.

    The workspace is a folder, or several.
    """
    return Config(
        scheduler or "local_cwd",
        workspace=Workspace.null() if workspace is None else Workspace.of(workspace),
    )


def component_fn(scheduler: str) -> NoReturn:
    """Raises NotImplementedError, as outside of Meta: there is no default application."""
    raise NotImplementedError(
        f"there is no default application for {scheduler!r}: set Config.appdef to an object with"
        " roles, each with name and num_replicas"
    )
