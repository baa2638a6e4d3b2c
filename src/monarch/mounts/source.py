"""The side that has the files: actors that answer for a folder, and tell of changes.

Two of them share a process of their own: one for names, one for content, so the listing of a
folder never waits for a disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection
from contextlib import suppress
from pickle import PickleBuffer
from typing import Any, TypeVar

from .._core.plane import subscribe
from ..actor import Actor, Port, current_rank, endpoint
from .folder import Attributes, Folder
from .place import FolderPlace, place_of
from .watch import FolderWatch

T = TypeVar("T")

_PATIENCE = 20.0  # seconds for a block by RDMA: less than its reader waits


class FolderSource(Actor):
    """A folder.

    Each answer is a value, or the number of an error: a missing file is nothing special, and gets
    no traceback.

    Args:
        paths: Where it is, by rank.
        hidden: As of `Folder`.
    """

    def __init__(self, paths: Collection[str], hidden: Collection[str]) -> None:
        self._path = list(paths)[current_rank().rank]
        self._folder = Folder(self._path, hidden)
        self._watch: FolderWatch | None = None

    @endpoint
    def place(self) -> FolderPlace:
        return place_of(self._path)

    @endpoint
    def tell(self, daemon: Any, key: str) -> None:
        """Tell an actor from now on what changes in folders that have been looked at."""
        self._watch = FolderWatch(lambda changes: daemon.changed.broadcast(key, changes))

    @endpoint
    def stat(self, path: str) -> Attributes | int:
        self._look_at(path.rpartition("/")[0])
        return tried(self._folder.stat, path)

    @endpoint
    def list(self, path: str) -> dict[str, Attributes] | int:
        self._look_at(path)
        return tried(self._folder.list, path)

    @endpoint
    def tree(
        self, path: str
    ) -> tuple[dict[str, dict[str, Attributes]], dict[str, tuple[Attributes, bytes]]] | int:
        return tried(self._folder.tree, path)

    @endpoint
    def link(self, path: str) -> str | int:
        return tried(self._folder.link, path)

    @endpoint
    def read(
        self, path: str, offset: int, size: int, length: int = 0, digest: bytes = b""
    ) -> tuple[Attributes, bool, PickleBuffer] | int:
        answer = tried(self._folder.read, path, offset, size, length, digest)
        if isinstance(answer, int):
            return answer
        attributes, same, data = answer
        # which goes beside the pickle, and is not copied into it
        return attributes, same, PickleBuffer(data)

    @endpoint(explicit_response_port=True)
    def put(self, port: Port[Any], path: str, offset: int, size: int, buffer: Any) -> None:
        """As `read`, into memory of the caller; the answer has the number of bytes.

        Where RDMA fails, the answer has the bytes. The transfer blocks no other request.

        Args:
            port: Takes the answer.
            path: Of the file, below the folder.
            offset: First byte to read.
            size: Number of bytes to read, at most.
            buffer: An `RDMABuffer` of the memory.
        """
        answer = tried(self._folder.read, path, offset, size)
        if isinstance(answer, int) or not answer[2]:
            port.send(answer if isinstance(answer, int) else (*answer[:2], 0))
            return
        attributes, same, data = answer
        written = buffer.write_from(data, timeout=_PATIENCE)

        def tell() -> None:
            failed = written.exception() is not None
            port.send((attributes, same, PickleBuffer(data) if failed else len(data)))

        subscribe(written, tell)

    def _look_at(self, folder: str) -> None:
        if self._watch is not None and folder not in self._watch:
            with suppress(OSError), self._folder.watchable(folder) as path:
                self._watch.add(folder, path)


def tried(function: Callable[..., T], *args: Any) -> T | int:
    """Call a function, and return its result or the number of its OSError."""
    try:
        return function(*args)
    except OSError as error:
        return error.errno or errno.EIO
