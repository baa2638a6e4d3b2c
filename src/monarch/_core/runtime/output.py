"""What procs print: lines, from the pipes that the host agent reads to the client's terminal.

`LineSplitter` (agent) keeps lines whole; `Printer` (client) writes each in one piece, on a thread of its own, so that a
slow terminal slows nothing else.
"""

from __future__ import annotations

import codecs
import sys
import threading
from queue import SimpleQueue

from ..._namedtuple import NamedTuple

_LONGEST = 64 * 1024  # a line longer than this is passed on in pieces


class LineSplitter:
    """Bytes in, whole lines out."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *ended, self._rest = (self._rest + data).split(b"\n")
        lines = [line.decode(errors="replace") for line in ended]
        if len(self._rest) > _LONGEST:
            piece, used = codecs.utf_8_decode(self._rest, "replace", False)  # up to a character that is not complete
            lines.append(piece)
            self._rest = self._rest[used:]
        return lines

    @property
    def waiting(self) -> bool:
        """Whether something was printed without a newline at its end."""
        return bool(self._rest)

    def finish(self) -> list[str]:
        """What was printed without a newline at the end."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class Output(NamedTuple):
    """Some lines of one proc.

    Attributes:
        stream: ``"stdout"`` or ``"stderr"``.
        prefix: Mesh and rank; empty where only one proc can print.
        lines: Without newlines.
        end: What follows the last of them.
    """

    stream: str
    prefix: str
    lines: list[str]
    end: str = "\n"


class Printer:
    """Writes to the client's ``sys.stdout`` and ``sys.stderr`` as they are at that moment."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Output | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, output: Output) -> None:
        self._queue.put(output)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="monarch-output", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write everything that was put, and end the thread. Waits as long as the terminal makes it, like any print."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            _write(item)


def _write(output: Output) -> None:
    file = sys.stderr if output.stream == "stderr" else sys.stdout
    if file is None:
        return
    try:
        file.write("\n".join(output.prefix + line for line in output.lines) + output.end)
        file.flush()
    except (OSError, ValueError):  # the terminal is gone, or the file was closed
        pass
