"""A program with a ``/tmp`` and a ``/dev/shm`` of its own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# What the program needs of the /tmp of all is mounted where it was.
_PRIVATE = """
set -e
IFS=:
mount --bind "$1" /dev/shm
for needed in $2; do
    mkdir -p "$0${needed#/tmp}"
    mount --rbind "$needed" "$0${needed#/tmp}"
done
mount --rbind "$0" /tmp
shift 2
exec env --default-signal=INT "$@"
"""


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
        command = [*_in_private(*map(str, self._folders)), sys.executable, *arguments]
        return subprocess.Popen(command, env={**environment, "TMPDIR": "/tmp"}, **how)  # type: ignore[call-overload, no-any-return]  # as its own

    def left(self) -> list[str]:
        """What is in its folders."""
        mounted = {Path(needed).relative_to("/tmp").parts[0] for needed in _needed()}
        return [
            f"{each.name}/{entry}"
            for each in self._folders
            for entry in os.listdir(each)
            if each.name != "tmp" or entry not in mounted
        ]


def _unshare() -> list[str]:
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def _needed() -> list[str]:
    """The folders below /tmp that a program of this tree needs."""
    tree = Path(__file__).resolve().parents[2]
    every = {str(tree), sys.prefix, sys.base_prefix}
    return sorted(folder for folder in every if folder.startswith("/tmp/"))


def _in_private(tmp: str, shm: str) -> list[str]:
    return [*_unshare(), "sh", "-c", _PRIVATE, tmp, shm, ":".join(_needed())]


@functools.cache
def why_not() -> str:
    """Why there can be no sandbox here; empty if there can."""
    if shutil.which("unshare") is None:
        return "there is no `unshare` (Debian: util-linux)"
    tried = subprocess.run(
        [*_in_private("/tmp", "/dev/shm"), "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip()
