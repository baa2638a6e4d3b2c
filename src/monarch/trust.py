"""Secrets that hosts share, so that they let in each other and no other.

`write_secret_file` makes one for good, ``monarch secret`` does the same from a terminal;
`make_secret` gives the text, for MONARCH_SECRET. `attach_to_workers` and the worker loops of
`monarch.actor` say where they look for it; `read_secret_file` is for programs that look elsewhere.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from ._public import publish
from ._secret import find_secret as find_secret
from ._secret import read_secret_file

__all__ = ["make_secret", "read_secret_file", "write_secret_file"]


def make_secret() -> str:
    """A new secret: 32 random bytes as base64."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")


def write_secret_file(path: str | os.PathLike[str]) -> None:
    """Write a new secret into a new file, private to its owner, with missing folders.

    Args:
        path: Path of the file.

    Raises:
        FileExistsError: There is such a file already; it is left alone, as others may use its
            secret.
        OSError: It cannot be written.
    """
    target = Path(path).expanduser()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise FileExistsError(
            f"{target} exists and is left as it is; remove it first if its secret is not in use"
        ) from None
    with open(fd, "w") as file:
        file.write(make_secret() + "\n")
        file.flush()
        os.fsync(fd)


publish(__name__, globals(), __all__)
