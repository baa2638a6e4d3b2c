"""Mounts by FUSE on this machine: what they need, and those that ended programs have left."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .._commands import run_caught
from .._namedtuple import NamedTuple
from .._proc_stat import STARTED, STATE, stat_of
from ..errors import MountError

_TYPE = "fuse.monarch"
_DEVICE = "/dev/fuse"
_NAME = re.compile(r"monarch:([0-9]{1,9}):([0-9]*):")
_SECONDS = 10.0  # in which `fusermount3` ends; it waits for nothing
_TURN = 60.0  # seconds in which those who mount on this machine before us have done so


class Mounted(NamedTuple):
    """A line of the table.

    Attributes:
        name: ``monarch:PID:START:KEY``, by which the process that serves it is found; or what
            another user has called one.
    """

    name: str
    point: str


def find_mounts() -> list[Mounted]:
    """The mounts that processes of Monarch serve, or have served."""
    with open("/proc/self/mounts", "rb") as file:
        lines = [os.fsdecode(line).split(" ") for line in file]
    return [Mounted(_unescaped(line[0]), _unescaped(line[1])) for line in lines if line[2] == _TYPE]


def own_name(key: str) -> str:
    """The name of a mount which this process serves."""
    return f"monarch:{os.getpid()}:{_started(os.getpid())}:{key}"


def remove_stale() -> None:
    """Remove mounts that are not served any more."""
    for each in find_mounts():
        known = _NAME.match(each.name)  # another user may give one any name
        if known is not None and _started(int(known[1])) != known[2]:
            unmount(each.point)


def unmount(point: str) -> None:
    """Unmount at once: open files give errors from then on.

    No effect if there is no mount.
    """
    with suppress(subprocess.TimeoutExpired):
        run_caught(["fusermount3", "-u", "-z", "-q", "--", point], _SECONDS)


@contextmanager
def mounting_alone() -> Iterator[None]:
    """Let no other process of Monarch on this machine mount meanwhile.

    Raises:
        MountError: Others hold it up.
    """
    # of which there is one, even if the processes share no folder
    with open(_DEVICE, "rb", buffering=0) as device:
        end = time.monotonic() + _TURN
        while True:
            try:
                fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise MountError(
                        f"{socket.gethostname()}: another process has been mounting for"
                        f" {_TURN:.0f} s"
                    ) from None
                time.sleep(0.01)
        yield


class TakenError(MountError):
    """Another process has a mount at the point."""


def check_fuse() -> None:
    """Raise MountError where this machine can mount nothing."""
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        why = f"{_DEVICE} is missing, or not accessible"
    elif shutil.which("fusermount3") is None:
        why = "fusermount3 is missing, which is in the system's package fuse3"
    elif importlib.util.find_spec("mfusepy") is None:
        why = "the package mfusepy is missing: pip install 'pymonarch[mount]'"
    else:
        return
    host = socket.gethostname()
    raise MountError(
        f"{host} can mount no folders: {why}. `job.sync()` brings folders to hosts without that"
    )


def _started(pid: int) -> str:
    stat = stat_of(pid)
    return stat[STARTED] if stat and stat[STATE] not in "ZX" else ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
