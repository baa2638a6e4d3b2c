"""A line of a log, its form in files, and the entry that shows one line, or several alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .ranks import describe

if TYPE_CHECKING:
    from .._core.plane import Note, Output


class LogLine(NamedTuple):
    """A line that a rank has printed, or a record of its `logging`.

    Attributes:
        time: Seconds since the epoch: when a record was made, or when the host agent read a printed
            line.
        stream: ``"stdout"``, ``"stderr"``, or ``"log"`` for a record of `logging`.
        level: Level of the record, as `logging` counts; 0 for printed lines.
        text: The line without its newline; a record with its traceback is one text of several
            lines.
        host: Name of the host: ``trainers[0] on node7`` of a job, else the machine's.
        mesh: Name of the proc mesh, or of the actor mesh that gave it its name.
        rank: Rank of the proc in that mesh.
        point: Coordinates of the rank, such as ``"hosts=1,gpus=3"``.
        job: Id of the job, or of the program.
        incarnation: 0 for the first process of this rank, 1 after the first restart, ...
        actor: Name of the actor that ran; empty for threads of others, child processes and C
            libraries.
        endpoint: Name of the endpoint that ran; empty in the same cases.
        logger: Name of the logger of a record.
        location: ``"file.py:12"``, where the record was made.
    """

    time: float
    stream: str
    level: int
    text: str
    host: str
    mesh: str
    rank: int
    point: str
    job: str = ""
    incarnation: int = 0
    actor: str = ""
    endpoint: str = ""
    logger: str = ""
    location: str = ""

    def to_json(self) -> str:
        """Return the line as one line of JSON; empty attributes are left out."""
        import json  # here and below: showing lines on a terminal needs none

        return json.dumps(
            {
                name: value
                for name, value in zip(self._fields, self, strict=True)
                if value not in ("", None)
            }
        )

    @classmethod
    def from_json(cls, text: str) -> LogLine:
        """Parse what `to_json` has made.

        Unknown keys are ignored, so that older programs read newer files.

        Raises:
            ValueError: It is not such a line.
        """
        import json

        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"a line of a log is a JSON object, got {text[:80]!r}")
        line = cls._make(map(found.get, cls._fields, _LEFT_OUT))
        if tuple(map(type, line)) not in _TYPES or not 0 <= line.time < _END_OF_TIME:
            raise ValueError(
                f"a line of a log lacks attributes, or they are of a wrong type: {text[:80]!r}"
            )
        return line


_LEFT_OUT = (None, None, None, "", "", "", None, "", *LogLine._field_defaults.values())
_END_OF_TIME = 1e12  # no number is what compares with nothing
_REST = (str, int, str, str, str, int, str, str, int, str, str, str, str)
_TYPES = ((float, *_REST), (int, *_REST))


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


class LogEntry(NamedTuple):
    """A line, or the common form of several, shown at once.

    Attributes:
        line: The first of them.
        text: Its text, with a range in place of each number that differs, such as ``0.31..0.52``.
        lines: How many they are.
        ranks: Who said them: coordinates by rank.
    """

    line: LogLine
    text: str
    lines: int
    ranks: dict[int, str]

    @property
    def who(self) -> str:
        """The ranks, as people write them."""
        return describe(self.ranks)


def alone(line: LogLine) -> LogEntry:
    """A line that is shown by itself."""
    return LogEntry(line, line.text, 1, {line.rank: line.point})
