"""Mounts as programs have them: who serves files where, and who mounts them.

    hosts with the folders              hosts that see them
    ┌ proc ─────────────────┐           ┌ proc ────────────┐
    │ names   FolderSource  │ ◀──asks── │ Daemon: FUSE     │ ◀── kernel ◀── any process
    │ content FolderSource  │ ──tells─▶ │                  │
    └───────────────────────┘           └──────────────────┘

All of them are procs of meshes, which an actor in the program's process owns. It is told when one
dies: the files of that host give errors from then on, and the program goes on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from .. import actor
from .._core.plane import random_uid
from .._namedtuple import NamedTuple
from ..errors import MountError
from .daemon import Daemon
from .source import FolderSource

SUBDIR = "$SUBDIR"
"""Stands in a path for what tells hosts, or meshes, from each other."""

logger = logging.getLogger("monarch.mounts")

A = TypeVar("A", bound=actor.Actor)


class MountPlan(NamedTuple):
    """The description of a mount.

    Attributes:
        sources: Hosts with the folders.
        paths: The folder on each of them.
        places: Where in the mount each is.
        hidden: Names that are not shown.
        hosts: Where to mount; None for the host of the program.
        point: Folder to mount on there.
        live: Whether the files are those that others write, as they grow; else as they are when
            they are looked at first.
    """

    sources: actor.HostMesh | None
    paths: Sequence[str]
    places: Sequence[str]
    hidden: Sequence[str]
    hosts: actor.HostMesh | None
    point: str
    live: bool


class Mount:
    """A mount that is open until `close`, or until this program ends in any way.

    It is made by `remotemount` and `gather_mount`.

    It serves as a context manager.
    """

    def __init__(self, plan: MountPlan) -> None:
        self._plan = plan
        self._owner: _MountOwner | None = None

    @property
    def point(self) -> str:
        """The folder that it is mounted on."""
        return self._plan.point

    def open(self) -> Mount:
        """Mount, unless it is mounted. It takes as long as the slowest of its hosts.

        Raises:
            MountError: A host can't mount anything, or not there.
            OSError: The folder can't be made.
            SupervisionError: A host has died meanwhile.
        """
        if self._owner is None:
            self._owner = actor.this_proc().spawn(
                f"mount_{random_uid():x}", _MountOwner, self._plan
            )
            try:
                self._owner.open.call_one().get()
            except BaseException as error:
                self.close()  # hosts that have mounted
                cause = error
                while isinstance(cause, actor.ActorError):  # of a daemon, in that of the owner
                    cause = cause.exception
                raise cause from None
        return self

    def refresh(self) -> None:
        """Show files as they are now. A mount that was lost is made again."""
        if self._owner is not None and not self._owner.refresh.call_one().get():
            self.close()
        self.open()

    def close(self) -> None:
        """Unmount on all hosts that are there. Programs with open files get errors."""
        owner, self._owner = self._owner, None
        if owner is not None:
            with suppress(actor.SupervisionError, actor.ActorError):
                owner.close.call_one().get()
            owner.stop("it is unmounted").get()

    def __enter__(self) -> Mount:
        return self.open()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Mount {self.point!r}{'' if self._owner is not None else ' (closed)'}>"


class _MountOwner(actor.Actor):
    """Owns the procs of a mount."""

    def __init__(self, plan: MountPlan) -> None:
        self._plan = plan
        self._procs: list[actor.ProcMesh] = []
        self._mounted: list[Daemon] = []  # daemons that have

    def __supervise__(self, failure: actor.MeshFailure) -> bool:
        if failure.mesh_name != "content":  # which shares its process with "names"
            logger.warning(
                "%s gives errors from now on: %s", self._plan.point, failure.event.reason
            )
        return True

    @actor.endpoint
    def open(self) -> None:
        plan, key = self._plan, f"{random_uid():x}"
        sources = (plan.sources or actor.this_host()).spawn_procs(name="mounted_folders")
        self._procs.append(sources)
        mounting = (plan.hosts or actor.this_host()).spawn_procs(name="mounts")
        self._procs.append(mounting)
        names = sources.spawn("names", FolderSource, plan.paths, plan.hidden)
        content = sources.spawn("content", FolderSource, plan.paths, plan.hidden)
        daemons = mounting.spawn("daemon", Daemon)
        if plan.live:
            for told in [
                _at(names, rank).tell.call_one(daemons, place)
                for rank, place in enumerate(plan.places)
            ]:
                told.get()
        actors = {
            place: (_at(names, rank), _at(content, rank)) for rank, place in enumerate(plan.places)
        }
        folders = list(names.place.call().get().values())
        seen = set()
        for rank, point in enumerate(daemons.look.call(plan.point).get().values()):
            if not plan.live and point == folders[0]:
                continue  # the folder is there by itself, under this path
            for path, folder in zip(plan.paths, folders, strict=True):
                if point.within(folder) or folder.within(point):
                    raise MountError(
                        f"{plan.point} shows {path}, so it must be neither that folder, nor in it,"
                        " nor around it, on the same machine: a reader of one would wait for the"
                        " other"
                    )
            if point.machine not in seen:
                seen.add(point.machine)  # hosts may share a machine: one of them mounts
                self._mounted.append(_at(daemons, rank))
        for answer in [
            each.mount.call_one(plan.point, actors, key, plan.live) for each in self._mounted
        ]:
            answer.get()

    @actor.endpoint
    def refresh(self) -> bool:
        answers = [each.refresh.call_one() for each in self._mounted]
        try:
            return all(answer.get() for answer in answers)
        except (actor.ActorError, actor.SupervisionError):
            return False

    @actor.endpoint
    def close(self) -> None:
        for answer in [each.unmount.call_one() for each in self._mounted]:
            # where its host is gone, its shell unmounts
            with suppress(actor.ActorError, actor.SupervisionError):
                answer.get()
        for end in [procs.stop("it is unmounted") for procs in self._procs]:
            with suppress(actor.SupervisionError):
                end.get()


def folder_here(path: str | os.PathLike[str]) -> str:
    """A folder of this machine to mount, as an absolute path.

    Raises:
        ValueError: There is none.
    """
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(path):
        raise ValueError(f"the folder to mount must be one on this machine, got {path!r}")
    return path


def show_folder(
    hosts: actor.HostMesh, source: str | os.PathLike[str], point: str | os.PathLike[str] | None
) -> Mount:
    """See `monarch.remotemount.remotemount`."""
    source = folder_here(source)
    where = os.path.abspath(os.path.expanduser(point)) if point is not None else source
    return Mount(MountPlan(None, [source], [""], [".monarch"], hosts, where, False)).open()


def gather_folders(
    hosts: actor.HostMesh, path: str | os.PathLike[str], point: str | os.PathLike[str]
) -> Mount:
    """See `monarch.gather_mount.gather_mount`."""
    extent, remote = hosts.extent, os.fspath(path)
    keys = [
        "_".join(f"{name}_{index}" for name, index in actor.Point(rank, extent).items())
        for rank in range(extent.nelements)
    ]
    paths = [remote.replace(SUBDIR, key) for key in keys]
    places = keys if len(keys) > 1 else [""]
    return Mount(
        MountPlan(hosts, paths, places, [], None, os.path.abspath(os.path.expanduser(point)), True)
    ).open()


def _at(mesh: A, rank: int) -> A:
    return mesh.slice(**actor.Point(rank, mesh.extent))
