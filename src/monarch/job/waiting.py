"""What people see while a job waits for machines: on a terminal one line that changes, else a line a minute."""

from __future__ import annotations

import sys
import time

_LIVE_AFTER = 2.0  # seconds; machines that come sooner are not worth a word
_LINES_AFTER = 10.0  # seconds, where it would stay to be read
_PERIOD = 60.0  # seconds between two lines
_CLEAR = "\033[K"  # the rest of the line


class Waiting:
    """Tells people on stderr what is waited for. Used on one thread.

    Args:
        what: Of whom: ``"Slurm job 17"``.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._begin = time.monotonic()
        self._told = -_PERIOD
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._shown = False

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def show(self, state: str) -> None:
        """Tell how it is now; to be called often."""
        if self.seconds < (_LIVE_AFTER if self._live else _LINES_AFTER) or sys.stderr is None:
            return
        if self._live:
            # The cursor goes back to where the line begins: what the program prints takes its place.
            print(f"{self._what}: {state}; {self.seconds:.0f} s{_CLEAR}\r", end="", file=sys.stderr, flush=True)
            self._shown = True
        elif self.seconds - self._told >= _PERIOD:
            print(f"{self._what}: {state}; {self.seconds:.0f} s", file=sys.stderr, flush=True)
            self._told = self.seconds

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
