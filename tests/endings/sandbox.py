"""A program with a ``/tmp`` and a ``/dev/shm`` of its own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PRIVATE = 'mount --bind "$1" /dev/shm && mount --bind "$0" /tmp && shift && exec env --default-signal=INT "$@"'


class Sandbox:
    """The folders that a program has in place of those that all share.

    Args:
        folder: Where they are; an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._folders = folder / "tmp", folder / "shm"
        for each in self._folders:
            each.mkdir()

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], **how: object
    ) -> subprocess.Popen[bytes]:
        """Start a program of Python.

        Args:
            arguments: Those of the interpreter.
            environment: The program's.
            how: As `subprocess.Popen` has it.
        """
        command = [
            *_unshare(), "sh", "-c", _PRIVATE, *map(str, self._folders), sys.executable, *arguments
        ]  # fmt: skip
        return subprocess.Popen(command, env={**environment, "TMPDIR": "/tmp"}, **how)  # type: ignore[call-overload, no-any-return]  # as its own

    def left(self) -> list[str]:
        """What is in its folders."""
        return [f"{each.name}/{entry}" for each in self._folders for entry in os.listdir(each)]


def _unshare() -> list[str]:
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


@functools.cache
def why_not() -> str:
    """Why there can be no sandbox here; empty if there can."""
    if shutil.which("unshare") is None:
        return "there is no `unshare` (Debian: util-linux)"
    tried = subprocess.run(
        [*_unshare(), "sh", "-c", _PRIVATE, "/tmp", "/dev/shm", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip()
