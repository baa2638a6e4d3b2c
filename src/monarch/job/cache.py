"""The file through which the next run of a program finds a job that is still running.

The file is a pickle, and unpickling runs code. So it is read only if it belongs to this user, nobody else may write it,
and no other user has put a link in its place. Writing replaces it as a whole: a reader sees the old job or the new one,
also after a crash. Whoever looks at the file in order to act on it holds its lock, a file beside it that stays.

The path may be a symlink, which is followed and kept: contexts of the command line select the active job that way.
Who holds the lock is another program that starts or ends a job here; waiting for it ends when that is done, or it died.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import JobError

logger = logging.getLogger("monarch.job")


class CacheFile:
    """One place for one running job.

    Args:
        path: Of the file, or of a symlink to it; neither has to exist.

    Attributes:
        path: The same, made absolute.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))

    @property
    def _file(self) -> Path:
        return Path(os.path.realpath(self.path))

    @property
    def folder(self) -> Path:
        """Where the file is, links followed."""
        return self._file.parent

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other programs from starting or ending a job here.

        Raises:
            JobError: Another user put a link there.
        """
        self._check_link()
        _make_folder(self.folder)
        lock = os.open(f"{self._file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(lock, self.path)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)  # said, as a child that was forked meanwhile has the descriptor, too
        finally:
            os.close(lock)

    def read(self) -> bytes | None:
        """The content, None if there is no such file.

        Raises:
            JobError: Unpickling it could run code of another user.
        """
        self._check_link()
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with open(fd, "rb") as file:
            self._check_owner(os.fstat(fd))
            return file.read()

    def write(self, content: bytes) -> None:
        """Replace the content; when this returns it is on the disk."""
        self._check_link()
        _make_folder(self.folder)
        fd, temporary = tempfile.mkstemp(prefix=f".{self._file.name}.", dir=self.folder)  # mode 0600
        try:
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
            os.replace(temporary, self._file)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(self.folder)

    def remove(self) -> None:
        """Remove the file; a symlink to it stays."""
        self._file.unlink(missing_ok=True)

    def _check_link(self) -> None:
        if self.path.is_symlink() and self.path.lstat().st_uid != os.getuid():
            raise JobError(
                f"{self.path} is a link that user {self.path.lstat().st_uid} made, not you; it is not followed, as reading "
                "a saved job runs code. Remove the link, or use another path"
            )

    def _check_owner(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise JobError(f"{self.path} is not a file")
        if status.st_uid != os.getuid():
            raise JobError(
                f"{self.path} belongs to user {status.st_uid}, you are {os.getuid()}; it is not read, as reading a saved job "
                "runs code. Use another path, or make the file your own if you trust what is in it"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise JobError(
                f"others may write {self.path} (mode {stat.S_IMODE(status.st_mode):o}); it is not read, as reading a saved job "
                "runs code. If you trust what is in it: chmod 600"
            )


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.info("waiting for another program that starts or ends the job of %s", path)
        fcntl.flock(fd, fcntl.LOCK_EX)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
