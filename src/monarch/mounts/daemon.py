"""The process that serves a mount: an actor in it that mounts, and is told what changes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..actor import Actor, Future, endpoint
from .blocks import Ask, Memory
from .content import Content
from .place import FolderPlace, place_of
from .table import TakenError, check_fuse, find_mounts, mounting_alone, remove_stale, unmount
from .tree import MountTree
from .view import STALE_SECONDS, MountView
from .watch import Changes

_BLOCKS = 128  # of 1 MiB, at most, that stay in memory, of all sources together


class Daemon(Actor):
    """Mounts one tree, once, in a process of its own.

    The end of that process is the end of the mount.
    """

    def __init__(self) -> None:
        self._tree = MountTree({})
        self._serving = threading.Event()
        self._point = ""
        self._operations: Any = None  # of `fuse`, once it is mounted

    @endpoint
    def look(self, point: str) -> FolderPlace:
        """Return where it would mount, after removing stale mounts.

        Raises:
            MountError: This machine can mount nothing.
        """
        check_fuse()
        remove_stale()
        return place_of(point)

    @endpoint
    def mount(
        self, point: str, sources: Mapping[str, tuple[Any, Any]], key: str, live: bool
    ) -> None:
        """Mount.

        Args:
            point: Where. The folder is made if there is none.
            sources: By path in the mount: actors that answer for names, and for content.
            key: Stands in the table of mounts.
            live: See `MountView`.

        Raises:
            MountError: The kernel refuses; a `TakenError` where it is a mount already.
            OSError: The folder can't be made.
        """
        self._point = os.path.realpath(point)
        memory = Memory(_BLOCKS)
        self._tree = MountTree(
            {path: MountView(_asking(*actors), live, memory) for path, actors in sources.items()}
        )
        fuse = import_module(".fuse", __package__)
        # of two programs that mount at the same point, the second one sees the first one's
        with mounting_alone():
            # `ismount` denies a mount after its process has died
            taken = self._point in (each.point for each in find_mounts())
            if not taken:
                os.makedirs(self._point, exist_ok=True)
            if taken or os.path.ismount(self._point):
                raise TakenError(f"{self._point} on {socket.gethostname()} is a mount already")
            self._serving.set()
            self._operations = fuse.serve(self._tree, self._point, key, live, self._serving.clear)

    @endpoint
    def changed(self, path: str, changes: Changes | None) -> None:
        """Something has, in one of the sources."""
        if path in self._tree.views:
            self._tree.views[path].forget(changes)

    @endpoint
    def refresh(self) -> bool:
        """Look at everything anew.

        It returns whether it is mounted, once the kernel has forgotten what it knew. Open files
        that are others by now are errors from then on.
        """
        for view in self._tree.views.values():
            view.forget()
        if self._serving.is_set():
            self._operations.look_again()
        # the kernel believes names and attributes for so long, and there is no call to make it
        # forget all
        time.sleep(STALE_SECONDS)
        return self._serving.is_set()

    @endpoint
    def unmount(self) -> None:
        """End it. Programs with open files get errors."""
        if self._serving.is_set():
            unmount(self._point)


def _asking(names: Any, content: Any) -> Ask:
    reader = Content(content)

    def ask(what: str, *args: Any) -> Future[Any]:
        if what == "read":
            return reader.read(*args)
        future: Future[Any] = getattr(names, what).call_one(*args)
        return future

    return ask
