"""The files of a folder, for the mounts that show them elsewhere.

No path leads out of it, and none is followed through a symlink.

Nothing stays open between two calls: each request names the file that it expects.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from .._namedtuple import NamedTuple

# who opens one of the files in it opens more, and Python knows what they were compiled from
_COMPILED = "__pycache__"
_MOST_NAMES = 1000  # that come along with those of a folder that was asked for
_MOST_CONTENT = 2 << 20  # bytes that come with names
_ATTEMPTS = 3  # to read without a write in between

_ONWARD = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# a pipe would wait for its writer
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Attributes(NamedTuple):
    """The attributes of a file. Two equal ones stand for the same content.

    Attributes:
        mode: Kind and permissions.
        mtime: When its content was changed last, in ns since 1970, as far as it admits it.
        ctime: When anything of it was changed last, which no program can set.
    """

    mode: int
    size: int
    mtime: int
    ctime: int
    inode: int


class Folder:
    """A folder, below which paths are relative: ``""`` is itself.

    Args:
        path: Where it is. It may come to be there later.
        hidden: Names that are not shown, wherever they are.
    """

    def __init__(self, path: str, hidden: Collection[str] = ()) -> None:
        self._path = os.path.expanduser(path)
        self._hidden = frozenset(hidden)

    def stat(self, path: str) -> Attributes:
        """The status of a path; of a symlink itself, not of its target."""
        with self._opened(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) as fd:
            return _attributes(os.fstat(fd))

    def list(self, path: str, most: int | None = None) -> dict[str, Attributes]:
        """List a folder by name.

        Mount points of other file systems are left out, as are their files.

        Args:
            path: Path of the folder, from the root of the mount.
            most: A folder of more names is an error.
        """
        found = {}
        with self._opened(path, _FOLDER) as fd, os.scandir(fd) as scanned:
            entries = [*islice(scanned, None if most is None else most + 1)]
            if most is not None and len(entries) > most:
                raise OSError(errno.E2BIG, os.strerror(errno.E2BIG), path)
            device = os.fstat(fd).st_dev
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # just removed
                    continue
                if status.st_dev == device and entry.name not in self._hidden:
                    found[entry.name] = _attributes(status)
        return found

    def tree(
        self, path: str
    ) -> tuple[dict[str, dict[str, Attributes]], dict[str, tuple[Attributes, bytes]]]:
        """Return in one answer what an import asks for next.

        Returns:
            The folder, and folders in it, the nearest first, as long as their names are not too
            many; each as `list` has it. Files of the folder by path, with what they are and hold,
            where it is one of compiled modules.
        """
        listed, contents = {path: self.list(path)}, {}
        waiting, room = [path], _MOST_NAMES - len(listed[path])
        while waiting and room > 0:
            folder = waiting.pop(0)
            for name, attributes in listed[folder].items():
                if stat.S_ISDIR(attributes.mode) and name != _COMPILED and room > 0:
                    below = f"{folder}/{name}" if folder else name
                    with suppress(OSError):  # it is closed to us, or gone, or has too many
                        listed[below] = self.list(below, room)
                        waiting.append(below)
                        room -= len(listed[below])
        if path.rpartition("/")[2] == _COMPILED:
            room = _MOST_CONTENT
            for name, attributes in listed[path].items():
                if stat.S_ISREG(attributes.mode) and attributes.size <= room:
                    with suppress(OSError):
                        now, _, content = self.read(f"{path}/{name}", 0, attributes.size)
                        if now == attributes and len(content) == now.size:
                            contents[f"{path}/{name}"] = now, content
                            room -= now.size
        return listed, contents

    def link(self, path: str) -> str:
        """Return the target of a symlink."""
        parent, _, name = path.rpartition("/")
        with self._opened(parent, _ONWARD) as fd:
            return os.readlink(name, dir_fd=fd)

    def read(
        self, path: str, offset: int, size: int, length: int = 0, digest: bytes = b""
    ) -> tuple[Attributes, bool, bytes]:
        """Read a part of a file, with its attributes when that was read.

        If it is written all the time, they are those after the read.

        Args:
            path: Path of the file, from the root of the mount.
            offset: Where to begin, in bytes.
            size: How many bytes to read, at most.
            length: Bytes that the reader has already, from `offset` on.
            digest: What `digest_of` says of them.

        Returns:
            Attributes; whether these bytes are still the same, so that only what follows them is
            there; content.
        """
        with self._opened(path, _FILE) as fd:
            attributes = _attributes(os.fstat(fd))
            if not stat.S_ISREG(attributes.mode):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            for _ in range(_ATTEMPTS):
                before, data = attributes, os.pread(fd, size, offset)
                attributes = _attributes(os.fstat(fd))
                if attributes == before:
                    break
        if length and len(data) >= length and digest_of(memoryview(data)[:length]) == digest:
            return attributes, True, data[length:]
        return attributes, False, data

    @contextmanager
    def watchable(self, path: str) -> Iterator[str]:
        """A name for a folder that leads nowhere else."""
        with self._opened(path, _ONWARD) as fd:
            yield f"/proc/self/fd/{fd}"

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        names = path.split("/") if path else []
        fd = os.open(self._path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            device = os.fstat(fd).st_dev
            for index, name in enumerate(names or ["."]):
                if names and name in ("", ".", "..", *self._hidden):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                below = os.open(name, flags if index >= len(names) - 1 else _ONWARD, dir_fd=fd)
                os.close(fd)
                fd = below
                if os.fstat(fd).st_dev != device:
                    raise FileNotFoundError(errno.ENOENT, "it is on another file system", path)
            yield fd
        finally:
            os.close(fd)


def digest_of(content: bytes | memoryview) -> bytes:
    """Tells whether content is the same as some other."""
    return hashlib.blake2b(content, digest_size=16).digest()


def _attributes(status: os.stat_result) -> Attributes:
    return Attributes(
        status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    )
