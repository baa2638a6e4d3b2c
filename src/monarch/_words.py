"""Words for people: times, many whole numbers, and what others have named or said.

A file, a thread, a mesh, a host may have any name. Code that prints one on a terminal goes through
`named` or `tame`, and nothing else knows what a terminal obeys.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Sequence
from typing import Any

NO_REPLICA = "waits for a replica: none is ready"
"""Ends the description of a call of a service that has none, by which the verdict on a program
knows it.
"""
HOST_NAMES: dict[str, str] = {}
"""What hosts are called in their jobs, ``trainers[0]``, by their addresses.

The client that attaches them fills it, its agent, and who looks at a program (`monarch.programs`).
"""
_RESET = "\x1b[0m"
_TURNS = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of text around
# as texts: few processes ever need them compiled, and `re` caches those that are
_OBEYED = (
    r"(?P<style>\x1b\[[0-9;:]*m)"
    r"|(?P<move>\x1b\[[0-9;]*[A-DGK]|[\x08\r])"  # near the line, which a progress bar does
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # modes, questions
    # titles, clipboard, ...
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"
    r"|\x1b[ -/]*[0-~]?"
    rf"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f{_TURNS}]"
)
_NOT_SHOWN = rf"[\x00-\x1f\x7f-\x9f\u2028\u2029{_TURNS}\ud800-\udfff]"


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``2 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def since(seconds: float | None) -> str:
    """`` for 43 s``; nothing of less than a second, or where that is not known."""
    return f" for {duration(seconds)}" if seconds is not None and seconds >= 1 else ""


def rank_name(mesh: str, ranks: int | str) -> str:
    """``trainers[3]``; the client, and a host that does not answer, have no number."""
    return mesh if mesh == "client" or mesh.startswith("host ") else f"{mesh}[{ranks}]"


def host_here() -> str:
    """The name of this host for people: ``trainers[0] on node7`` of a job, else the machine's."""
    return os.environ.get("MONARCH_HOST") or socket.gethostname()


def in_job(host: str) -> str:
    """The name in its job of what `host_here` says: ``trainers[0]``, else the machine's."""
    return host.partition(" on ")[0]


def machine_of(host: str) -> str:
    """The machine of what `host_here` says: ``node7``."""
    return host.rpartition(" on ")[2]


def host_named(host: str) -> str:
    """``trainers[0] (tcp://10.0.0.7:26600)``; a host without a name in a job stays as it is."""
    return f"{HOST_NAMES[host]} ({host})" if host in HOST_NAMES else host


def ranges(numbers: Iterable[int], most: int = sys.maxsize) -> str:
    """``0-3,7``; what comes after `most` ranges is counted only."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    text = ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in found[:most]
    )
    left = sum(last - first + 1 for first, last in found[most:])
    return f"{text},... ({left} more)" if left else text


def tame(text: str, colours: bool, moves: bool = False) -> str:
    """Leave out what a terminal would obey: titles, clipboard, modes, changes of direction.

    Args:
        text: Any, of several lines too.
        colours: Whether those stay.
        moves: Whether what moves the cursor or erases stays, as a progress bar does.
    """
    # the first is ten times as fast, and mostly enough
    if text.replace("\n", "").isprintable() or not re.search(_OBEYED, text):
        return text

    def kept(found: re.Match[str]) -> str:
        return (colours and found["style"]) or (moves and found["move"]) or ""

    left = re.sub(_OBEYED, kept, text)
    ends = moves or "\x1b" not in left.rpartition(_RESET)[2]  # a bar goes on
    return left if ends else left + _RESET


def named(name: str) -> str:
    """A name in one line: what can't be shown stands there as Python writes it, ``\\x1b``."""
    if name.isprintable():
        return name
    return re.sub(_NOT_SHOWN, lambda found: ascii(found[0])[1:-1], name)


class TameStream:
    """A stream without what a terminal would obey, but for colours. All else is the stream's own.

    Args:
        bare: The stream.
    """

    def __init__(self, bare: Any) -> None:
        self.bare = bare

    def write(self, text: str) -> object:
        tamed = tame(text, True)
        # a file may have any name
        encoding = self.bare.encoding or "utf-8"
        return self.bare.write(tamed.encode(encoding, "backslashreplace").decode(encoding))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


def aligned(rows: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """A line for each row, with cells aligned in columns; a shorter row may stick out."""
    cells = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [gap.join(map(str.ljust, row, widths)).rstrip() for row in rows]


def bare(stream: Any) -> Any:
    """The stream itself, for what moves the cursor: see `TameStream`."""
    return stream.bare if isinstance(stream, TameStream) else stream


def draw(text: str) -> None:
    """Print to stderr, at once, what may move the cursor."""
    print(text, end="", file=bare(sys.stderr), flush=True)
