"""Files and folders that no other user has made, or may change.

Reading another user's file here would run that user's code.

Root is excepted, as from everything, and so is a group that has nobody else in it: with the umask
of many systems, what a user makes may be written by a group of his own name. In a folder such as
``/tmp``, nobody can replace what is ours.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from ..errors import JobError


def check_all_levels(path: Path, so: str) -> None:
    """Check a file and every folder on the way to it, up to the root.

    Args:
        path: The file.
        so: What follows, for the message.

    Raises:
        JobError: Another user owns one of them, or may write it.
    """
    _check(path, so)  # which may be a link
    real = Path(os.path.realpath(path))
    for level in (*reversed(real.parents), real):
        _check(level, so)


def check_own_levels(path: Path) -> None:
    """Check a file of a job, and the folders on the way to it below the working directory.

    Elsewhere, only the folder that it is in is checked.

    Folders above are not looked at: a container may well run as root in a folder of a user.

    Raises:
        JobError: Another user owns one of them, or may write it.
    """
    so = "it is not used, as reading a saved job runs code. Remove it, or use another path"
    for way in dict.fromkeys((Path(os.path.abspath(path)), Path(os.path.realpath(path)))):
        here = Path.cwd()
        below = [level for level in (way, *way.parents) if here in level.parents]
        for level in reversed(below or [way, way.parent]):
            _check(level, so)


def make_folder(folder: Path) -> None:
    """Make a private folder for the files of a job, with missing parents.

    Raises:
        JobError: Another user owns it, or may write it.
    """
    check_own_levels(folder)  # first: what is made within another's folder would be another's
    for level in (*reversed(folder.parents), folder):
        if not level.exists():
            level.mkdir(mode=0o700, exist_ok=True)
    check_own_levels(folder)


def _check(path: Path, so: str) -> None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if found.st_uid not in (os.geteuid(), 0):
        what = "is a link that" if stat.S_ISLNK(found.st_mode) else "belongs to"
        made = " made" if stat.S_ISLNK(found.st_mode) else ""
        raise JobError(
            f"{path} {what} user {_user(found.st_uid)}{made}, and you are {_user(os.geteuid())}:"
            f" {so}"
        )
    if stat.S_ISLNK(found.st_mode) or (
        stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    ):
        return
    if found.st_mode & stat.S_IWOTH or (
        found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)
    ):
        raise JobError(
            f"others may write {path} (mode {stat.S_IMODE(found.st_mode):o}): {so}. If you trust"
            f" what is in it: chmod go-w {path}"
        )


def _is_private(group: int) -> bool:
    """Return whether a group has our user in it, and no one else."""
    try:
        me, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (me.pw_gid, me.pw_name) == (found.gr_gid, found.gr_name) and not set(found.gr_mem) - {
        me.pw_name
    }


def _user(uid: int) -> str:
    try:
        return f"{uid} ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return str(uid)
