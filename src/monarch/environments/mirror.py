"""``sync_workspace(conda=True)``: a conda environment of this machine, on hosts, as it is now.

It is sent as a workspace is: changed files only, by content. Then each host makes an environment
of it, once, in which paths are those of that host (`enter`), and starts the procs of this program
in it.

What ends the waits: those of a sync, and `_LIMIT`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .._core.plane import current_hub
from ..errors import EnvironmentFailed
from ..programs import agents_of
from ..sync import SyncResult, Workspace, sync_hosts
from ..sync.ignore import Rules
from ..sync.push import Answers
from .conda import CondaEnvironment
from .enter import Enter
from .prefix import editable_folders, spellings

_LIMIT = 3900.0  # seconds: longer than a host waits for another process that makes the same


class _Environment(Workspace):
    """A conda environment, and the folders that it imports from.

    Those are in it as ``__editable__.NAME``.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = Path(os.path.realpath(prefix))
        self.editable: dict[str, str] = {}  # by how files of the environment may spell the folder
        dirs = {str(self.prefix): ""}
        for folder, name in editable_folders(prefix).items():
            real = os.path.realpath(folder)
            if real not in dirs:
                place = f"__editable__.{name}"
                while place in dirs.values():  # two of one name
                    place += "_"
                dirs[real] = place
            self.editable.update(dict.fromkeys(spellings(folder), dirs[real]))
        super().__init__(dirs)

    @property
    def imported(self) -> dict[str, str]:
        """None of it: its packages are found by its interpreter."""
        return {}

    def rules_of(self, folder: Path) -> Rules:
        """The rules of omitted files: of the environment its cache, of code by its own rules."""
        return Rules(but=f"{folder}/pkgs") if folder == self.prefix else super().rules_of(folder)

    @property
    def key(self) -> str:
        return f"conda-{super().key}"


async def mirror_to(hosts: Sequence[str], workspace: object) -> SyncResult:
    """Bring a conda environment to hosts, where this program's procs start in it from then on.

    Args:
        hosts: Their names.
        workspace: Its `Workspace.env` is meant; where that is none, the active environment.

    Raises:
        EnvironmentFailed: A host can't make it.
        NotADirectoryError: There is no such folder, or no longer one that it imports from.
        RuntimeError: None is given, and none is active.
        SyncError: A host has failed.
        TypeError: `Workspace.env` is none.
    """
    env = getattr(workspace, "env", None) or CondaEnvironment()
    prefix = getattr(env, "conda_prefix", None)
    if prefix is None:
        raise TypeError(
            f"env of a Workspace is a monarch.environments.CondaEnvironment, got {env!r}"
        )
    return await asyncio.to_thread(_mirror, hosts, Path(prefix))


def _mirror(hosts: Sequence[str], prefix: Path) -> SyncResult:
    if not (prefix / "conda-meta").is_dir():
        raise EnvironmentFailed(
            f"{prefix} is no conda environment: there is no folder conda-meta in it"
        )
    workspace = _Environment(prefix)
    result = sync_hosts(hosts, workspace)
    hub = current_hub()
    answers = Answers(agents_of(hosts), f"the environment of {len(hosts)} hosts")
    record = Enter(workspace.key, hub.root, sys.executable, spellings(prefix), workspace.editable)
    answers.ask(hub, record, _LIMIT).get()
    if answers.silent:
        where = f"{len(answers.silent)} of {len(hosts)} hosts"
        texts = "\n".join(dict.fromkeys(answers.silent.values()))
        raise EnvironmentFailed(f"the environment {prefix} is not on {where}: {texts}")
    return result
