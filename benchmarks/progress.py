"""What a person sees while a run goes on: lines on stderr, and on a terminal also what is running
right now.
"""

from __future__ import annotations

import sys
from typing import TextIO

ERASE = "\r\x1b[K"


class Progress:
    """Lines on `stream`; where that is a terminal, a last line that the next one replaces."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()

    def status(self, text: str) -> None:
        """What is running. Not shown in a file or a pipe."""
        if self._terminal:
            print(f"{ERASE}{text} ...", end="", file=self._stream, flush=True)

    def say(self, line: str) -> None:
        """A line that stays."""
        print(f"{ERASE if self._terminal else ''}{line}", file=self._stream, flush=True)
