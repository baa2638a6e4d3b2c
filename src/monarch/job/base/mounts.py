"""Folders that the hosts of a job and its program show to each other."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import mounts

if TYPE_CHECKING:
    from ...actor import HostMesh
    from ...mounts import Mount
    from .state import JobState

DEFAULT_PYTHON = ".venv/bin/python"
"""The interpreter in a folder that is mounted."""


class _Wanted(NamedTuple):
    """A mount that the user of a job has asked for.

    Attributes:
        gather: From the hosts to the program; else from the program to the hosts.
        source: The folder.
        point: Where it is mounted.
        meshes: On, or of, which hosts; None for all.
        python: Interpreter in it for procs of these; None for the one that they have.
    """

    gather: bool
    source: str
    point: str
    meshes: tuple[str, ...] | None
    python: str | None


class MountingJob:
    """The part of a job that is about mounts.

    They are wanted from when they are asked for, there from `state` on, and gone with the job or
    the program, whichever ends first. Those are the mounts of this program: they are not saved with
    the job, so others that use it mount what they ask for themselves.
    """

    _mounts: tuple[_Wanted, ...] = ()
    _mounted: tuple[tuple[_Wanted, str, tuple[str, ...], Mount], ...] = ()  # with mesh and hosts

    def remote_mount(
        self,
        source: str | os.PathLike[str],
        mntpoint: str | os.PathLike[str] | None = None,
        meshes: Collection[str] | None = None,
        python_exe: str | None = DEFAULT_PYTHON,
        **tuning: Any,
    ) -> None:
        """Have each `state` show a folder of this machine on hosts of the job, read-only.

        The folder is shown as it is then. See docs/mounts.md.

        Args:
            source: The folder.
            mntpoint: Where it is there, ``$SUBDIR`` for the name of the mesh; None for the same
                path. ``~`` and relative paths are those of this program.
            meshes: Names of the meshes with hosts that see it; None for all.
            python_exe: An interpreter in the folder, which procs on these hosts run with; None for
                none.
            tuning: Of Monarch 0.7, without effect.

        Raises:
            ValueError: There is no such folder, or no such interpreter in it.
        """
        source = mounts.folder_here(source)
        if python_exe is not None and not os.path.isfile(os.path.join(source, python_exe)):
            raise ValueError(
                f"{os.path.join(source, python_exe)!r} should be the interpreter of procs there,"
                " and is no file; python_exe=None leaves them the one that they have"
            )
        point = source if mntpoint is None else os.path.abspath(os.path.expanduser(mntpoint))
        self._want(_Wanted(False, source, point, _names(meshes), python_exe))

    def gather_mount(
        self,
        remote_mount_point: str | os.PathLike[str],
        local_mount_point: str | os.PathLike[str],
        meshes: Collection[str] | None = None,
    ) -> None:
        """Have `state` show a folder of each host of the job on this machine, read-only.

        It is shown as it grows. See docs/mounts.md.

        Args:
            remote_mount_point: Which folder; ``$SUBDIR`` in it stands for the folder below which
                the host is seen here.
            local_mount_point: Where they are seen: ``hosts_0`` and so on below it; a mesh of one
                host there itself; several meshes below folders of their names.
            meshes: Names of the meshes; None for all.
        """
        point = os.path.abspath(os.path.expanduser(local_mount_point))
        self._want(_Wanted(True, os.fspath(remote_mount_point), point, _names(meshes), None))

    def _want(self, wanted: _Wanted) -> None:
        """Add a mount, in place of an earlier one at the same point of the same meshes."""
        others = [
            each
            for each in self._mounts
            if (each.gather, each.point, each.meshes)
            != (wanted.gather, wanted.point, wanted.meshes)
        ]
        self._mounts = (*others, wanted)

    def _mount(self, state: JobState, wanted: Collection[_Wanted], shares: bool) -> None:
        """Bring the mounts up to date with the wanted ones.

        New ones are made, existing ones show their folder as it is now, and those that are
        no longer wanted, or on other hosts, are unmounted. With `shares`, one that another
        program of the job has mounted is used.
        """
        keys = {}
        for each in wanted:
            names = tuple(state._hosts) if each.meshes is None else each.meshes
            for name in names:
                mesh: HostMesh = getattr(state, name)
                mesh.initialized.get()
                keys[each, name, tuple(mesh._hosts)] = name if len(names) > 1 else "", mesh
        before = {(each, name, hosts): mount for each, name, hosts, mount in self._mounted}
        self._mounted = tuple((*key, mount) for key, mount in before.items() if key in keys)
        for key, mount in before.items():
            if key not in keys:  # first: another one may be wanted at its point
                mount.close()
        for key, (below, mesh) in keys.items():
            if key in before:
                before[key].refresh()
            else:
                try:
                    self._mounted += ((*key, _mount(key[0], below, key[1], mesh)),)
                except mounts.TakenError:
                    if not shares:
                        raise
        pythons = {
            name: os.path.join(each.point.replace(mounts.SUBDIR, name), each.python)
            for each, name, _ in keys
            if each.python is not None
        }
        for name, path in pythons.items():
            state._hosts[name] = state._hosts[name].with_python_executable(path)

    def _unmount(self) -> None:
        mounted, self._mounted = self._mounted, ()
        for *_, mount in mounted:
            mount.close()


def _mount(wanted: _Wanted, below: str, name: str, mesh: HostMesh) -> Mount:
    if wanted.gather:
        return mounts.gather_folders(mesh, wanted.source, os.path.join(wanted.point, below))
    return mounts.show_folder(mesh, wanted.source, wanted.point.replace(mounts.SUBDIR, name))


def _names(meshes: Collection[str] | None) -> tuple[str, ...] | None:
    return None if meshes is None else (meshes,) if isinstance(meshes, str) else tuple(meshes)
