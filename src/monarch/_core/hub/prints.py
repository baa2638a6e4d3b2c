"""What a proc prints: whole lines, and known to its answers, so that the client shows the one before the other.

The streams of a proc are Python's own, over a file that notes that it was written to. Only that is noted: an answer of a
proc that has printed nothing pays one look at a variable. What child processes and C libraries write is not noted.
"""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from typing import Any

from ..wire.address import ProcAddress
from ..wire.frame import PRINTED

unshown = False
"""Whether something was printed, here or by somebody who has told this process so, since the client was last told."""

_streams: list[io.TextIOWrapper] = []


class _Noted(io.FileIO):
    def write(self, data: Any) -> int:
        global unshown
        unshown = True
        return super().write(data)


def install() -> None:
    """Have ``sys.stdout`` and ``sys.stderr`` take note. They write line by line, with ``PYTHONUNBUFFERED``, too: there, the
    end of a line is a write of its own, and what others print comes in between.
    """
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if (
            type(stream) is not io.TextIOWrapper or stream in _streams
        ):  # there is none, or a module has put its own there
            continue
        with suppress(OSError, ValueError):
            raw = _Noted(stream.fileno(), "w", closefd=False)
            # the agent reads UTF-8; what the client's own output cannot encode is the client's concern
            noted = io.TextIOWrapper(
                io.BufferedWriter(raw), "utf-8", "backslashreplace", newline="\n", line_buffering=True
            )
            _streams.append(noted)
            setattr(sys, name, noted)
            setattr(sys, f"__{name}__", noted)


def pass_on(peer: ProcAddress) -> None:
    """Whoever has sent something had printed before: so has this process, as far as its own answers go."""
    global unshown
    unshown = True


def flag(to: ProcAddress, client: ProcAddress) -> int:
    """The flag of an answer that is sent after something was printed."""
    global unshown
    if to == client:
        unshown = False  # first: what another actor prints meanwhile is for its own answer
    for stream in _streams:
        with suppress(OSError, ValueError):
            stream.flush()
    return PRINTED
