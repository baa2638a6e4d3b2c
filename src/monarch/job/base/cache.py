"""The file through which the next run of a program finds a job that is still running.

The file is a pickle, and unpickling runs code. So it is read only if it belongs to this user, and
no other may write it, nor has made a folder or a link on the way to it (see `_ours`). Writing
replaces it as a whole: a reader sees the old job or the new one, also after a crash. A process that
reads the file in order to act on it holds its lock, a file beside it that stays.

The path may be a symlink, which is followed and kept: contexts of the command line select the
active job that way. The holder of the lock is another program that starts or ends a job here;
waiting for it ends when that is done, when it died, or after `_LOCK_PATIENCE`.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..._ours import opened, resolved
from ...errors import JobError

FORMAT = 2
"""Version of the saved format: raised when an attribute of a kind of job gets another name or
meaning, or when a new attribute has no default.
"""

_FORMAT_KEY = "_format"
_LOCK_PATIENCE = 120.0  # seconds
_LOCK_PAUSE = 0.05  # seconds until the lock is tried again; the kernel offers no wait with an end

logger = logging.getLogger("monarch.job")


@contextmanager
def needs_room(job: object) -> Iterator[None]:
    """Have a disk that is full while a job starts be an error of the job.

    Raises:
        JobError: It is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise JobError(f"{job!r} can't be started, as a disk is full: {error}") from error


def with_format(state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a job as they are saved."""
    return {_FORMAT_KEY: FORMAT, **state}


def checked_format(saved: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a saved job.

    Raises:
        ValueError: Another version of the code has saved it, which gave them other names or
            meanings.
    """
    attributes = dict(saved)
    if (found := attributes.pop(_FORMAT_KEY, "none")) != FORMAT:
        raise ValueError(
            f"it was saved by another version of pymonarch, in format {found}; this one has format"
            f" {FORMAT}"
        )
    return attributes


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
    def _file(self) -> tuple[str, str]:
        """The folder of the file, with links of ours followed, and its name there."""
        return os.path.split(resolved(self.path))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other programs from starting or ending a job here.

        Raises:
            JobError: The place is not this user's alone; or another program has held it for two
                minutes.
        """
        place, name = self._file
        with opened(place, make=True) as folder:
            lock = folder.open(f"{name}.lock", os.O_RDWR | os.O_CREAT)
        try:
            _lock(lock, self.path)
            try:
                yield
            finally:
                # said, as a child that was forked meanwhile has the descriptor, too
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            os.close(lock)

    def read(self) -> bytes | None:
        """The content, None if there is no such file.

        Raises:
            JobError: Unpickling it could run code of another user.
        """
        place, name = self._file
        try:
            with opened(place) as folder:
                return folder.read(name)
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Replace the content; when this returns it is on the disk.

        Raises:
            JobError: The place is not this user's alone.
        """
        place, name = self._file
        with opened(place, make=True) as folder:
            folder.replace(name, content, sync=True)

    def remove(self) -> None:
        """Remove the file; a symlink to it stays."""
        place, name = self._file
        with suppress(FileNotFoundError), opened(place) as folder:
            folder.remove(name)


def _lock(fd: int, path: Path) -> None:
    end = time.monotonic() + _LOCK_PATIENCE
    waited = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not waited:
                logger.info("waiting for %s, which starts or ends the job of %s", _holder(fd), path)
                waited = True
            if time.monotonic() > end:
                raise JobError(
                    f"{_holder(fd)} has been starting or ending the job of {path} for"
                    f" {_LOCK_PATIENCE:g}s. Wait for it or end it, or use another path"
                ) from None
            time.sleep(_LOCK_PAUSE)


def _holder(fd: int) -> str:
    """Return the holder of the lock on a file, for messages."""
    inode = f":{os.fstat(fd).st_ino}"
    with suppress(OSError, IndexError):  # it has just let go
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(inode):
                words = Path(f"/proc/{fields[4]}/cmdline").read_bytes().split(b"\0")
                command = b" ".join(words).decode(errors="replace")
                return f"process {fields[4]} ({command.strip()[:100]})"
    return "another program"


def conflict(saved: object, spec: object, path: Path) -> str:
    """Why a job is not started where another one is kept."""
    alike = " (they differ in something that is not shown)" if repr(saved) == repr(spec) else ""
    return (
        f"{path} keeps {saved!r}, which runs and is not what this program describes:"
        f" {spec!r}{alike}. Nothing was changed. End it (`monarch kill`, or"
        f" job_load({str(path)!r}).kill()), or keep both: state(cached_path=...) with another file"
    )
