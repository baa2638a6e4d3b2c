"""Folders of ours, where other users may put things, too.

One module for what Monarch keeps below ``.monarch`` and among temporary files. A folder is opened
level by level, each from the one before it and none through a link; its owner and its mode are
those of the opened folder. Its contents are reached by its descriptor, so nothing changes when
another user moves the path meanwhile. Files are made 0600, folders 0700. Nothing is removed but by
a name that is ours.

Root is excepted, as from everything, and so is a group that has no other member: with the umask of
many systems, what a user makes may be written by a group of his own name.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from .errors import JobError

HERE = ".monarch"
"""The folder of ours in a working directory."""

StrPath: TypeAlias = "str | os.PathLike[str]"

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
"""Flags for a file that is not there yet."""

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
"""Flags for a file that may be there."""

_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LEVEL = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is not waited for
_SO = (
    "it is not used, as others could have code run, or files written. Remove it, or use another"
    " path"
)


class NotOurs(JobError, PermissionError):
    """Another user has made a file, a folder or a link, or may write it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.strerror = text  # as those have that the system raises


class Folder:
    """A folder that is open, until the end of a ``with`` block.

    Attributes:
        path: For messages.
        fd: Its descriptor.
    """

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)

    @property
    def way(self) -> str:
        """A path that leads to the open folder, for libraries, while it is open."""
        return f"/proc/self/fd/{self.fd}"

    def below(self, name: str, make: bool = False) -> Folder:
        """Open a folder in it.

        Raises:
            NotOurs: It is a link, or another user has made it, or may write it.
        """
        path = f"{self.path.rstrip('/')}/{name}"
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.fd)
        return Folder(path, self._checked(path, name, _LEVEL, stat.S_IFDIR))

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file in it, which is made 0600; returns the descriptor.

        Raises:
            NotOurs: It is a link or no file, or another user has made it, or may write it.
        """
        return self._checked(f"{self.path}/{name}", name, flags | _FILE, stat.S_IFREG)

    def _checked(self, path: str, name: str, flags: int, kind: int) -> int:
        try:
            fd = os.open(name, flags, 0o600, dir_fd=self.fd)
        except OSError as error:
            if (there := self.status(name)) is not None:
                # its error names the owner, or says that it is a link
                check(path, there, stat.S_IFDIR)
            error.filename = path
            raise
        try:
            check(path, os.fstat(fd), kind)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read(self, name: str) -> bytes:
        """Return the content of a file; raises as `open` does."""
        with open(self.open(name), "rb") as file:
            return file.read()

    def replace(self, name: str, content: bytes, sync: bool = False) -> None:
        """Write a file; readers see the old one or the new one, whole.

        Also after a crash of the machine, if `sync` waits for the disk.
        """
        new = self._new(name)
        try:
            with open(self.open(new, NEW), "wb") as file:
                file.write(content)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            self.move(new, name)
        except BaseException:
            self.remove(new)
            raise
        if sync:
            os.fsync(self.fd)

    def link(self, name: str, target: str) -> None:
        """Make a link in it, or have it lead elsewhere."""
        new = self._new(name)
        os.symlink(target, new, dir_fd=self.fd)
        self.move(new, name)

    def _new(self, name: str) -> str:
        return f".{name}.{os.urandom(8).hex()}"

    @contextmanager
    def scratch(self, *names: str) -> Iterator[Folder]:
        """A new folder in it; at the end it is removed, with the files of these names."""
        name = self._new("new")
        os.mkdir(name, 0o700, dir_fd=self.fd)
        try:
            with self.below(name) as folder:
                try:
                    yield folder
                finally:
                    folder.remove(*names)
        finally:
            with suppress(OSError):
                os.rmdir(name, dir_fd=self.fd)

    def move(self, old: str, new: str) -> None:
        """Give a file of it another name in it."""
        os.replace(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def status(self, name: str) -> os.stat_result | None:
        """The status of an entry, of a link itself; None if there is none."""
        try:
            return os.lstat(name, dir_fd=self.fd)
        except FileNotFoundError:
            return None

    def names(self, pattern: str = ".*") -> list[str]:
        """The names in it that a regular expression matches whole, sorted."""
        import re  # which processes need not have at their start

        return sorted(filter(re.compile(pattern, re.DOTALL).fullmatch, os.listdir(self.fd)))

    def remove(self, *names: str) -> None:
        """Remove files, those that are there."""
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.fd)


def opened(path: StrPath, make: bool = False, root: StrPath = "") -> Folder:
    """Open a folder of ours.

    Args:
        path: Of the folder.
        make: Make missing folders on the way to it.
        root: A folder that the user has chosen: folders below it are checked, level by level. The
            working directory if nothing is said; for paths elsewhere, the folder above, and the
            last level may be a link of ours. It may be another user's: a container may well run as
            root in a folder of a user.

    Raises:
        NotOurs: A level is a link, or another user has made it, or may write it.
        FileNotFoundError: There is none.
    """
    path = os.path.abspath(path)
    try:
        top = os.path.abspath(root)
    except FileNotFoundError:  # the working directory was removed
        top = os.path.dirname(path)
    if path != top and not path.startswith(f"{top.rstrip('/')}/"):
        if os.path.islink(path):  # the user's own, or of the system
            check(path, os.lstat(path), stat.S_IFLNK)
            path = os.path.realpath(path)
        top = os.path.dirname(path)
    while make and not os.path.isdir(top):
        top = os.path.dirname(top)
    levels = [name for name in path[len(top) :].split("/") if name]
    folder = Folder(top, os.open(top, _ROOT if levels else _ROOT & ~os.O_PATH))
    for name in levels:
        with folder:
            folder = folder.below(name, make)
    return folder


def make(path: StrPath) -> None:
    """Make a folder of ours, unless it is there; raises as `opened` does."""
    with opened(path, make=True):
        pass


def touch(path: StrPath) -> None:
    """Make an empty file in a folder of ours, unless it is there; raises as `opened` does."""
    above, name = os.path.split(path)
    with opened(above) as folder:
        os.close(folder.open(name, APPEND))


def names(path: StrPath, pattern: str = ".*") -> list[str]:
    """The names in a folder of ours that a regular expression matches whole; none if it is gone."""
    with suppress(FileNotFoundError), opened(path) as folder:
        return folder.names(pattern)
    return []


def look(path: StrPath) -> int:
    """Open a file for reading of which the content is only shown, whichever users may write it.

    No link leads to it, or to its folder. Its owner is that of the folder, or this user, or root.

    Returns:
        The descriptor.

    Raises:
        NotOurs: It is a link, no file, or another user's.
    """
    above, name = os.path.split(os.path.abspath(path))
    try:
        with Folder(above, os.open(above, _LEVEL)) as folder:
            fd = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder.fd)
            owners = os.geteuid(), 0, os.fstat(folder.fd).st_uid
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise NotOurs(f"a link leads to {path}, which is not followed here") from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners:
        os.close(fd)
        raise NotOurs(f"{path} is no file of user {_user(owners[0])}")
    return fd


def plain(path: StrPath) -> int:
    """Open a file for reading, anyone's, where other users may put a pipe or a device in its place.

    Neither is waited for, or read without end.

    Returns:
        The descriptor.

    Raises:
        FileNotFoundError: There is none, or it is no plain file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "it is no file", os.fspath(path))
    return fd


def tail(path: StrPath, size: int) -> str:
    """Return the last bytes of a file, as text; raises as `look` does."""
    with open(look(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size).decode(errors="replace")


def remove_tree(path: StrPath) -> None:
    """Remove a folder of ours that was made for one thing, with its contents, as far as it goes."""
    import shutil

    with suppress(OSError), opened(path) as folder:
        shutil.rmtree(f"{folder.way}/.", ignore_errors=True)  # which follows no link
        os.rmdir(path)


def resolved(path: StrPath) -> str:
    """The path of a file, with links followed that are in folders of ours, and made by us.

    Raises:
        NotOurs: One is another user's, or in a folder that is not ours.
    """
    path = os.path.abspath(path)
    for _ in range(40):  # as many as the kernel follows
        above, name = os.path.split(path)
        with suppress(FileNotFoundError), opened(above) as folder:
            found = folder.status(name)
            if found is not None and stat.S_ISLNK(found.st_mode):
                check(path, found, stat.S_IFLNK)
                target = os.readlink(name, dir_fd=folder.fd)
                path = os.path.abspath(os.path.join(above, target))
                continue
        return path
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


_said: set[str] = set()


def say(text: str) -> None:
    """Print a line to stderr, once in a process."""
    if text not in _said:
        _said.add(text)
        with suppress(OSError, ValueError):  # it is closed
            print(text, file=sys.stderr)


def choose(
    path: StrPath, *parts: str, root: StrPath = "", tell: Callable[[str], object] | None = say
) -> tuple[str, str]:
    """Find a place for files: a folder, or one in the user's state folder where it is not ours.

    Args:
        path: The folder.
        *parts: Names on the way to the other one.
        root: As `opened` takes it.
        tell: Called with one line where it is the other one; in a process, the same line is
            printed once.

    Returns:
        The folder, and its root.
    """
    path, root = os.path.abspath(os.path.join(root, path)), os.path.abspath(root)
    try:
        with suppress(FileNotFoundError), opened(path, root=root):
            pass
    except NotOurs as error:
        root = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        path = os.path.join(root, "monarch", *parts)
        if tell is not None:
            tell(f"monarch: {error}; until then, files go to {root}/monarch")
    return path, root


def place(*parts: str, tell: Callable[[str], object] | None = say) -> Folder:
    """Open a folder below `.monarch`, or in the user's state folder where that is not ours.

    It is made if it is missing. For arguments and errors see `choose` and `opened`.
    """
    path, root = choose(os.path.join(HERE, *parts), *parts, tell=tell)
    return opened(path, True, root)


def check_all_levels(path: StrPath, so: str) -> None:
    """Check a file and every folder on the way to it, up to the root; links of ours may be there.

    Args:
        path: The file.
        so: What follows, for the message.

    Raises:
        NotOurs: Another user owns one of them, or may write it.
    """
    levels = [os.path.realpath(path)]
    while levels[-1] != "/":
        levels.append(os.path.dirname(levels[-1]))
    for level in (os.path.abspath(path), *reversed(levels)):
        with suppress(FileNotFoundError, NotADirectoryError):
            check(level, os.lstat(level), 0, so)


def check(path: str, found: os.stat_result, kind: int, so: str = _SO) -> None:
    """Check that a file, folder or link is ours.

    Args:
        path: For messages.
        found: Its status.
        kind: As ``S_IFMT`` has it; 0 for any.
        so: What follows, for the message.

    Raises:
        NotOurs: It is not.
    """
    mode, link = found.st_mode, stat.S_ISLNK(found.st_mode)
    if found.st_uid not in (os.geteuid(), 0):
        said = "is a link that user {} made" if link else "belongs to user {}"
        raise NotOurs(
            f"{path} {said.format(_user(found.st_uid))}, and you are {_user(os.geteuid())}: {so}"
        )
    if link and kind not in (0, stat.S_IFLNK):
        raise NotOurs(f"{path} is a link, which is not followed here: {so}")
    if kind == stat.S_IFREG != stat.S_IFMT(mode):
        raise NotOurs(f"{path} is not a file: {so}")
    if link or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):  # where others can't replace ours
        return
    group = mode & stat.S_IWGRP and (kind == stat.S_IFREG or not _is_private(found.st_gid))
    if mode & stat.S_IWOTH or group:  # what we make is not for a group, so files are not
        raise NotOurs(
            f"others may write {path} (mode {stat.S_IMODE(mode):o}): {so}. If you trust what is in"
            f" it: chmod go-w {path}"
        )


def is_private(path: str) -> bool:
    """Return whether a folder is there that no other user has made, or can enter."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    mode = found.st_mode
    return stat.S_ISDIR(mode) and found.st_uid == os.geteuid() and not mode & 0o077


def _is_private(group: int) -> bool:
    """Return whether a group has our user in it, and no one else."""
    import grp
    import pwd

    try:
        me, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (me.pw_gid, me.pw_name) == (found.gr_gid, found.gr_name) and not set(found.gr_mem) - {
        me.pw_name
    }


def user_name() -> str:
    """Return the name of this user: the number where it has none, as in many containers."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _user(uid: int) -> str:
    import pwd

    try:
        return f"{uid} ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return str(uid)
