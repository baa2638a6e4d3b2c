"""The progress of reading or sending a workspace, as a bar.

It is shown on a terminal, with rich, and only where it takes a while.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from .._words import bare

_SOON = 0.5  # seconds: a sync done by then needs no bar


class Progress:
    """A progress bar.

    Args:
        what: Is done.
        total: Bytes; None if not known yet.
    """

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._begun = time.monotonic()
        self._bar: Any = None
        self._wanted = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def advance(self, size: int) -> None:
        """So many more bytes are done."""
        self._done += size
        if self._wanted and self._bar is None and time.monotonic() - self._begun > _SOON:
            self._show()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def _show(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )
            from rich.progress import Progress as Bar
        except ImportError:
            self._wanted = False
            return
        columns = (
            self._what,
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=Console(file=bare(sys.stderr)), transient=True)
        self._task = self._bar.add_task(self._what, total=self._total)
        self._bar.start()

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()
