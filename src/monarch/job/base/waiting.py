"""The display while a job waits for machines.

On a terminal it is a line and a table that change, else a line a minute.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence

from ..._patterns.activities import other_waits
from ..._words import aligned, draw, named

_LIVE_AFTER = 2.0  # seconds; machines that come sooner are not worth a word
_LINES_AFTER = 10.0  # seconds, where it would stay to be read
_PERIOD = 60.0  # seconds between two lines
_MOST_ROWS = 12
_CLEAR = "\033[K"  # the rest of the line
_CLEAR_BELOW = "\033[J"  # and of the screen


class Waiting:
    """Shows on stderr, and in the verdict on the program, which hosts or jobs are waited for.

    Used on one thread.

    Args:
        what: Of whom: ``"Slurm job 17"``.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._begin = time.monotonic()
        self._told = -_PERIOD
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._shown = 0  # lines

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begin

    def is_longer_than(self, limit: float | None) -> bool:
        """Return whether it has lasted more than so many seconds; None is no limit."""
        return limit is not None and self.seconds > limit

    def show(self, state: str, rows: Sequence[tuple[str, ...]] = ()) -> None:
        """Tell how it is now; to be called often.

        Args:
            state: In one line.
            rows: A table with a row for each host that is waited for, and why; on terminals alone.
        """
        begun = time.time() - self.seconds
        other_waits[threading.get_ident()] = begun, f"{self._what}: {named(state)}"
        if self.seconds < (_LIVE_AFTER if self._live else _LINES_AFTER) or sys.stderr is None:
            return
        state = named(state)
        if self._live:
            # The cursor goes back to where the line begins: what the program prints takes its
            # place.
            head = f"{self._what}: {state}; {self.seconds:.0f} s"
            lines = [head[: _width()], *_table(rows)] if rows else [head]
            below = _CLEAR_BELOW if len(lines) < self._shown else ""
            up = f"\033[{len(lines) - 1}A" if len(lines) > 1 else ""
            text = "\n".join(line + _CLEAR for line in lines)
            draw(f"{below}{text}\r{up}")
            self._shown = len(lines)
        elif self.seconds - self._told >= _PERIOD:
            print(f"{self._what}: {state}; {self.seconds:.0f} s", file=sys.stderr, flush=True)
            self._told = self.seconds

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *exc: object) -> None:
        """Clear the line."""
        other_waits.pop(threading.get_ident(), None)
        if self._shown:
            draw(_CLEAR_BELOW if self._shown > 1 else _CLEAR)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with columns, each in one line of the terminal."""
    shown = [tuple(map(named, row)) for row in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        shown.append((f"... and {len(rows) - _MOST_ROWS} more",))
    return [f"  {line}"[: _width()] for line in aligned(shown)]


def _width() -> int:
    return shutil.get_terminal_size().columns - 1
