"""From output of procs, as the engine passes it on, to lines of a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .line import LogLine

if TYPE_CHECKING:
    from .._core.plane import Note, Output


def log_lines(output: Output, job: str = "") -> Iterator[LogLine]:
    """Yield the lines of an output.

    Args:
        output: What a proc has printed.
        job: Id of the job, or of the program.
    """
    for note, texts in output.said:
        for text in texts:
            yield log_line(output, note, text, job)


def log_line(output: Output, note: Note, text: str, job: str) -> LogLine:
    """Return a line of an output, of those that have this note."""
    source = output.source
    return LogLine(
        note.time or output.time, "log" if note.logger else output.stream, note.level, text,
        source.host, source.mesh, source.rank, source.point, job,
        source.incarnation, note.actor, note.endpoint, note.logger, note.location,
    )  # fmt: skip
