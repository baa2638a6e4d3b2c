"""The shared secret: where it comes from.

First of: the argument, MONARCH_SECRET, the file that MONARCH_SECRET_FILE names, ~/.monarch/secret.
An empty variable counts as none, as everywhere. White space around a secret is dropped: files end
with a newline.
"""

from __future__ import annotations

import os
import stat

SHORTEST = 16  # bytes
_DEFAULT_FILE = "~/.monarch/secret"
_MAKE_ONE = "`monarch secret` makes a good one"


def read_secret_file(path: str | os.PathLike[str]) -> str:
    """Return the secret in a file.

    Args:
        path: Path of the file.

    Raises:
        ValueError: It is too short, or the file cannot be read or can be read by others.
    """
    return _checked(str(path), _read(str(path), "the secret")).decode()


def find_secret(given: str | None) -> bytes | None:
    """The secret to use, or None where there is none.

    Raises:
        ValueError: It is too short, or its file cannot be read or can be read by others.
    """
    if given is not None:
        return _checked("secret", given)
    if text := os.environ.get("MONARCH_SECRET"):
        return _checked("MONARCH_SECRET", text)
    if path := os.environ.get("MONARCH_SECRET_FILE"):
        return _checked(f"MONARCH_SECRET_FILE ({path})", _read(path, "MONARCH_SECRET_FILE"))
    if os.path.exists(default := os.path.expanduser(_DEFAULT_FILE)):
        return _checked(default, _read(default, "the secret"))
    return None


def _checked(source: str, text: str) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"{source}: wanted a text, got {type(text).__name__}")
    secret = text.strip().encode()
    if len(secret) < SHORTEST:
        raise ValueError(
            f"{source}: {len(secret)} bytes are too few to be secret, wanted {SHORTEST} or more;"
            f" {_MAKE_ONE}"
        )
    return secret


def _read(path: str, what: str) -> str:
    try:
        with open(os.path.expanduser(path)) as file:
            _check_private(path, os.fstat(file.fileno()))
            return file.read(64 * 1024)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{what}: cannot read the file {path!r}: {why}; {_MAKE_ONE}") from None


def _check_private(path: str, found: os.stat_result) -> None:
    """Only we may read it.

    A group may, where the file is root's: so do systems hand a secret to one service.
    """
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path!r} is no file")
    if found.st_uid not in (os.geteuid(), 0):
        raise ValueError(
            f"{path!r} belongs to user {found.st_uid}, not to us (user {os.geteuid()})"
        )
    handed_to_us = found.st_uid == 0 and os.geteuid() != 0
    others = stat.S_IRWXO | stat.S_IWGRP | (0 if handed_to_us else stat.S_IRGRP)
    if found.st_mode & others:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(
            f"{path!r} has mode {mode:o}, so others can read it: make a new secret, or run chmod"
            " 600 on it"
        )
