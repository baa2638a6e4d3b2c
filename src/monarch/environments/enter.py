"""The hosts' side of `mirror`.

An agent makes an environment of what a sync has brought, and starts the procs of that program in
it.

The files stay those of the sync (hard links), where both are on one disk, but for those with paths
in them. It is made by a thread of its own: other syncs go on meanwhile, and so do messages. What
ends a wait for another process that makes the same one: see `venv`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from .._answering import answer_on_thread
from .._core.plane import ControlRequest, ProcAddress, handles
from .._namedtuple import NamedTuple
from ..errors import EnvironmentFailed
from ..sync.host import start_procs_in
from ..sync.manifest import Manifest
from ..sync.store import WorkspaceStore, base_folder
from .prefix import relocate
from .venv import COMPLETE, made_once, of_worker


class Enter(NamedTuple):
    """Start the procs of a program in a conda environment, which has been synced.

    Client ──▶ host agents. Answer: its folder there.

    Attributes:
        key: Of the workspace that it is.
        root: The client of the program.
        python: The interpreter of that, in place of which is the one of the environment.
        prefixes: The folder of the environment over there, as its files may spell it.
        editable: Other folders over there that it imports from, and where in the workspace they
            are.
    """

    key: str
    root: ProcAddress
    python: str
    prefixes: list[str]
    editable: dict[str, str]


@handles(Enter)
def _enter(service: Any, request: ControlRequest, record: Enter) -> None:
    answer_on_thread(request, "monarch-environment", _entered, record)


def _entered(record: Enter) -> str:
    folder = _made(record)
    start_procs_in(record.root, record.python, folder)
    return folder


def _made(record: Enter) -> str:
    store = WorkspaceStore(base_folder(), record.key)
    version, manifest = store.in_use()
    if manifest is None:
        raise EnvironmentFailed("the environment that was synced is not there any more")
    source, found = store.current.with_name("versions") / version, manifest
    parts = [manifest.id, *record.prefixes, *map("=".join, record.editable.items()), *of_worker()]
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]

    def fill(folder: Path, lock: int) -> None:
        _copy(source, found, folder)
        moved = {old: f"{folder}/{place}" for old, place in record.editable.items()}
        relocate(folder, {file.path for file in found.files}, record.prefixes, moved)

    return str(Path(made_once(digest, fill).python).parents[1])


def _copy(source: Path, manifest: Manifest, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for path in manifest.folders:
        os.mkdir(f"{folder}/{path}", 0o700)
    for path, target in manifest.links.items():
        os.symlink(target, f"{folder}/{path}")
    for file in manifest.files:
        if file.path == COMPLETE:  # of an environment that was made so itself
            continue
        try:
            os.link(f"{source}/{file.path}", f"{folder}/{file.path}")
        except OSError:  # it is on another disk
            shutil.copy2(f"{source}/{file.path}", f"{folder}/{file.path}")


HANDLERS = (_enter,)
