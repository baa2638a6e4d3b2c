"""One line of a log, and its form in files."""

from __future__ import annotations

from typing import NamedTuple


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
