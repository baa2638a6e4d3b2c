"""What actors saw, as lines of a file: they survive the end of whoever wrote them, and do not use
what is tested.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple


class Heard(NamedTuple):
    """An owner was told of a failure. The client is the owner ``("client", 0)``."""

    hearer: str
    hearer_rank: int
    mesh: str
    rank: int
    cause: str
    signal: int | None
    exit_code: int | None


class Ended(NamedTuple):
    """An actor's `__cleanup__` ran."""

    name: str
    rank: int
    failed: bool


class Disorder(NamedTuple):
    """A message came out of turn."""

    name: str
    rank: int
    sender: str
    expected: int
    got: int


Entry = Heard | Ended | Disorder
_KINDS = {kind.__name__: kind for kind in (Heard, Ended, Disorder)}


class Journal:
    """Appended to by many processes, one short line at a time, which the kernel keeps whole.

    Crosses by its path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._read_up_to = 0

    def write(self, entry: Entry) -> None:
        line = json.dumps([type(entry).__name__, *entry]) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def news(self) -> list[Entry]:
        """What was written since the last time."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._read_up_to)
                text, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read_up_to += len(text) + len(newline)
        entries: list[Entry] = []
        for line in text.splitlines():
            kind, *fields = json.loads(line)
            entries.append(_KINDS[kind](*fields))
        return entries

    def __reduce__(self) -> tuple[type[Journal], tuple[str]]:
        return Journal, (self.path,)
