"""The client's view of the lines of ranks, where they are not simply written.

On terminals; collected over a window; as JSON.

One thread uses it: the one that writes them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .. import config
from .aggregate import Aggregator
from .line import LogEntry, LogLine, log_lines
from .terminal import TerminalStyle, coloured, is_terminal

if TYPE_CHECKING:
    from .._core.plane import Output


class LogView:
    """Shows outputs, or keeps them until they are due.

    Args:
        write: Writes a text to ``"stdout"`` or ``"stderr"``, in one piece.
    """

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._to = write
        # those of which something may be held, by their ids
        self._meshes: dict[str, Aggregator] = {}

    def show(self, output: Output) -> None:
        """Show lines, or collect them."""
        mesh, window = output.collect or ("", 0.0)
        if config.value("log_format") == "json":
            for line in log_lines(output):
                self._to(output.stream, line.to_json() + "\n")
            return
        found = self._meshes.get(mesh)
        if found is not None and found.window != window:
            self._write(self._meshes.pop(mesh).flush())
        if window and output.end:
            lines, now = self._lines(mesh, window), time.monotonic()
            self._write(entry for line in _shown(output) for entry in lines.take(line, now))
        else:
            file = getattr(sys, output.stream)
            with _bars_kept(file):
                self._to(output.stream, _look(file).show(output, _name(output)))

    @property
    def due(self) -> float | None:
        """The time at which `expire` has something to do, by `time.monotonic`."""
        return min(
            (each.due for each in self._meshes.values() if each.due is not None), default=None
        )

    def expire(self) -> None:
        """Show lines that were held for their full time."""
        now = time.monotonic()
        for mesh, lines in list(self._meshes.items()):
            self._write(lines.expire(now))
            if lines.due is None:
                del self._meshes[mesh]

    def flush(self) -> None:
        """Show all that is held."""
        for lines in self._meshes.values():
            self._write(lines.flush())
        self._meshes.clear()

    def _lines(self, mesh: str, window: float) -> Aggregator:
        if mesh not in self._meshes:
            self._meshes[mesh] = Aggregator(window)
        return self._meshes[mesh]

    def _write(self, entries: Iterable[LogEntry]) -> None:
        for stream, together in groupby(entries, lambda entry: entry.line.stream):
            file = getattr(sys, stream)
            text = "".join(map(_look(file).render, together))
            with _bars_kept(file):
                self._to(stream, text)


def _look(file: Any) -> TerminalStyle:
    return TerminalStyle(coloured(file), is_terminal(file))


def _name(output: Output) -> str:
    """The name of its mesh, if that is to be shown."""
    return "" if output.source.alone or not config.value("prefix_with_rank") else output.source.mesh


def _shown(output: Output) -> Iterator[LogLine]:
    """The lines of an output as they are to be shown: where they were written to."""
    mesh = _name(output)
    return (line._replace(stream=output.stream, mesh=mesh) for line in log_lines(output))


@contextmanager
def _bars_kept(file: Any) -> Iterator[None]:
    """Hides progress bars of the program while something is written.

    They stand on a line without an end.

    One that can't clear or draw itself stays as it is.
    """
    tqdm, bars = sys.modules.get("tqdm.std"), ExitStack()
    if tqdm is not None:
        with suppress(Exception):
            bars.enter_context(tqdm.tqdm.external_write_mode(file))
    try:
        yield
    finally:
        with suppress(Exception):
            bars.close()
