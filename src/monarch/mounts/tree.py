"""The tree of files of one mount: the folder of each source, as one file system shows them.

`fuse` asks it for each call of the kernel, and tests ask it directly: it needs no FUSE.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from .folder import Attributes
from .view import MountView, OpenFile

_OWN = Attributes(stat.S_IFDIR | 0o755, 0, 0, 0, 0)

T = TypeVar("T")


class MountTree:
    """The views of one mount.

    Args:
        views: By the path of the folder that shows each; a single one may be at ``""``.
    """

    def __init__(self, views: Mapping[str, MountView]) -> None:
        self.views = dict(views)
        # folders above the views, with the names in each
        self._folders: dict[str, dict[str, None]] = {"": {}}
        for path in views:
            while path:
                parent, _, name = path.rpartition("/")
                self._folders.setdefault(parent, {})[name] = None
                path = parent

    def stat(self, path: str) -> Attributes:
        """Answer for folders that are made up here, views included, without asking a host.

        They are there even if no host answers.
        """
        if path in self._folders or path in self.views:
            return _OWN
        return self._at(path, MountView.stat)

    def list(self, path: str) -> Collection[tuple[str, int]]:
        """Names in a folder, and what each is, as the mode says it."""
        if path in self._folders and path not in self.views:
            return [(name, _OWN.mode) for name in self._folders[path]]
        view, below = self._find(path)
        prefix = f"{below}/" if below else ""
        return [(name, view.kind(prefix + name)) for name in view.names(below)]

    def link(self, path: str) -> str:
        return self._at(path, MountView.link)

    def open(self, path: str) -> OpenFile:
        return self._at(path, MountView.open)

    def _at(self, path: str, function: Callable[[MountView, str], T]) -> T:
        return function(*self._find(path))

    def _find(self, path: str) -> tuple[MountView, str]:
        head, tail = path, ""
        while head not in self.views:
            if not head:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            head, _, name = head.rpartition("/")
            tail = f"{name}/{tail}" if tail else name
        return self.views[head], tail
