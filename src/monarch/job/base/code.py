"""Bringing the code of a program to the hosts of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ... import sync
from ...errors import JobError

if TYPE_CHECKING:
    from ...actor import HostMesh
    from ...sync import SyncResult, Workspace
    from .trait import JobTrait


class SyncedCode:
    """The part of a job that is about code."""

    # folders that were synced last, and their places: for `monarch bounce`
    _workspace: dict[str, str] | None = None

    def sync(self, workspace: Any = None, *, auto_reload: bool = False) -> SyncResult:
        """Bring folders of this machine to all hosts of the job, as they are now.

        Only changes are sent.

        Procs that are spawned there afterwards import from it; see `HostMesh.sync_workspace`.

        Args:
            workspace: As for `HostMesh.sync_workspace`; None for the working directory.
            auto_reload: Have this program's procs there reload modules that have changed.

        Returns:
            A record of what the sync sent, left out and reloaded; its text is a summary of a few
            lines.

        Raises:
            JobError: The job does not run.
            OSError: A file of the workspace can't be read.
            SyncError: A host has failed; the others are done.
        """
        job = cast("JobTrait", self)
        if not job.active:
            raise JobError(f"{self!r} does not run: state() starts it")
        state = job._owner._connected[-1] if job._owner._connected else job.state()
        return Synchronizer(job, state._hosts, sync.Workspace.of(workspace)).sync(auto_reload)


class Synchronizer:
    """Brings a workspace to the hosts of a job as often as one likes.

    Args:
        job: It runs, and is connected.
        meshes: Its hosts.
        workspace: What to bring there.
        every_program: Whether procs of other programs reload, too.
    """

    def __init__(
        self,
        job: JobTrait,
        meshes: dict[str, HostMesh],
        workspace: Workspace,
        every_program: bool = False,
    ) -> None:
        for mesh in meshes.values():
            mesh.initialized.get()
        self._job = job
        self._hosts = [
            mesh._hosts[rank] for mesh in meshes.values() for rank in mesh._shape.ranks()
        ]
        self._workspace = workspace
        self._scanner = sync.Scanner(workspace)
        self._every_program = every_program

    def has_changed(self) -> bool:
        """Return whether anything has changed since the last sync."""
        return self._scanner.sent != self._scanner.scan().manifest.id

    def sync(self, auto_reload: bool = False) -> SyncResult:
        """See `SyncedCode.sync`."""
        self._remember()
        return sync.sync_hosts(
            self._hosts, self._workspace, auto_reload, self._every_program, self._scanner
        )

    def _remember(self) -> None:
        owner = self._job._owner
        dirs = {str(folder): place for folder, place in self._workspace.dirs.items()}
        if owner._workspace == dirs:
            return
        owner._workspace = dirs
        if owner._cache is not None:
            with owner._cache.locked():
                if owner._refresh():
                    owner._workspace = dirs
                    owner._cache.write(owner._pickled())
