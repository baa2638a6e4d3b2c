"""Which folders of this machine are mirrored on hosts, and where in the workspace there."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .ignore import Rules, rules_above

Dirs = Mapping[str | os.PathLike[str], str] | Iterable[str | os.PathLike[str]]


class Workspace:
    """Folders that are mirrored on hosts.

    Args:
        dirs: Folders, each of which goes by its own name there; or folder to path in the workspace,
            where "" is the workspace itself.
        env: The `monarch.environments.CondaEnvironment` that ``sync_workspace(conda=True)`` brings
            along; None for the active one.

    Attributes:
        dirs: Folder, made absolute, to its path in the workspace.

    Raises:
        NotADirectoryError: One of them is no folder.
        TypeError: `dirs` is a single path; or something in it is no path.
        ValueError: Two folders would be at one place; or a path leads out of the workspace.
    """

    def __init__(self, dirs: Dirs, env: object = None) -> None:
        if isinstance(dirs, str | os.PathLike):
            raise TypeError(
                f"dirs is a list of folders, or a dict: Workspace([{os.fspath(dirs)!r}])"
            )
        pairs = dirs.items() if isinstance(dirs, Mapping) else [(each, None) for each in dirs]
        self.env = env
        self.dirs: dict[Path, str] = {}
        for each, place in pairs:
            folder = Path(os.path.realpath(os.path.expanduser(each)))
            if not folder.is_dir():
                raise NotADirectoryError(f"{os.fspath(each)!r} is no folder of this machine")
            self.dirs[folder] = _checked_place(folder.name if place is None else str(place))
        places = list(self.dirs.values())
        if len(set(places)) != len(places):
            raise ValueError(
                f"two folders would be at one place of the workspace: {self.dirs}; name places:"
                " {folder: place}"
            )

    @classmethod
    def of(cls, value: Any) -> Workspace:
        """The workspace that an argument means.

        It is one already, or what one is made from, or a single folder, which is the
        workspace itself.

        A single folder that is None is the working directory.
        """
        if isinstance(value, Workspace):
            return value
        if value is None or isinstance(value, str | os.PathLike):
            return cls({os.getcwd() if value is None else value: ""})
        return cls(getattr(value, "dirs", value))

    @staticmethod
    def null() -> Workspace:
        """A workspace without folders."""
        return Workspace([])

    def merge(self, other: Workspace) -> Workspace:
        """The folders of both; for a folder that is in both, the place that the other one names."""
        dirs: dict[str | os.PathLike[str], str] = {
            os.fspath(each): place for each, place in self.dirs.items()
        }
        dirs.update((os.fspath(each), place) for each, place in other.dirs.items())
        return Workspace(dirs, other.env or self.env)

    def set_env_vars(self, appdef: Any) -> None:
        """Set WORKSPACE_DIR, PYTHONPATH and CONDA_DIR of each role of an application of torchx.

        Hosts of jobs need none of it: a sync sets what their procs see.
        """
        root = "${img_root}/workspace"  # as torchx names the folder of an image
        places = [f"{root}/{place}".rstrip("/") for place in self.dirs.values()]
        for role in appdef.roles:
            before = [role.env["PYTHONPATH"]] if role.env.get("PYTHONPATH") else []
            role.env.update(
                WORKSPACE_DIR=root,
                PYTHONPATH=os.pathsep.join([*places, *before]),
                CONDA_DIR="${img_root}/conda",
            )

    @property
    def imported(self) -> dict[str, str]:
        """As `dirs`, for hosts: folders that procs import from."""
        return {str(folder): place for folder, place in self.dirs.items()}

    def rules_of(self, folder: Path) -> Rules:
        """Return the rules for one of its folders, from the files above it."""
        return rules_above(str(folder))

    @property
    def key(self) -> str:
        """Name of the folder on hosts.

        It is the same for the same folders of the same machine, and for no others.
        """
        folders = (f"{folder}\0{place}" for folder, place in sorted(self.dirs.items()))
        which = "\0".join([socket.gethostname(), *folders])
        name = (
            re.sub(r"[^\w-]", "_", next(iter(self.dirs)).name if self.dirs else "") or "workspace"
        )
        return f"{name}-{hashlib.sha256(os.fsencode(which)).hexdigest()[:8]}"

    def __repr__(self) -> str:
        return f"Workspace({ {str(folder): place for folder, place in self.dirs.items()} })"


def _checked_place(place: str) -> str:
    parts = [part for part in place.split("/") if part not in ("", ".")]
    if place.startswith("/") or ".." in parts:
        raise ValueError(
            f"{place!r} leads out of the workspace: a place is a path below it, such as 'src/lib',"
            " or ''"
        )
    return "/".join(parts)
