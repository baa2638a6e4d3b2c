"""What procs print: lines, from the pipes that the host agent reads to the client's terminal.

`LineSplitter` (agent) keeps lines whole; `Printer` (client) writes each in one piece, on a thread of its own, so that a
slow terminal slows nothing else. For what is shown before an answer, see `unshown`.
"""

from __future__ import annotations

import codecs
import sys
import threading
from collections import deque
from collections.abc import Callable

from ..._namedtuple import NamedTuple
from ..wire.address import ProcAddress

_LONGEST = 64 * 1024  # a line longer than this is passed on in pieces
_LIMIT = 64 << 20  # characters that wait for whoever reads the client's output


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


class Mark(NamedTuple):
    """Stands in a host's stream of output behind all that was printed there before somebody asked for it."""

    agent: ProcAddress
    number: int


class Printer:
    """Writes to the client's ``sys.stdout`` and ``sys.stderr`` as they are at that moment, on a thread of its own.

    What is not written yet is bounded: where nobody reads what the client prints, lines beyond `_LIMIT` are left out, and
    counted.
    """

    def __init__(self) -> None:
        self._queue: deque[Output | Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._waiting = 0  # characters
        self._left_out = LeftOut(0, 0)
        self._closed = False
        self.written = 0
        """How many outputs were written."""
        self._thread = threading.Thread(target=self._run, name="monarch-output", daemon=True)
        self._thread.start()  # with the client: later, the system may have no thread to give

    def put(self, item: Output | Callable[[], object]) -> None:
        """Have something written; or called, when all that was put before it is written."""
        with self._changed:
            if isinstance(item, Output):
                size = sum(map(len, item.lines))
                if self._waiting + size > _LIMIT:
                    self._left_out = LeftOut(self._left_out.lines + len(item.lines), self._left_out.characters + size)
                    return
                self._waiting += size
            self._queue.append(item)
            self._changed.notify()

    def close(self) -> None:
        """Write everything that was put, and end the thread. Waits as long as the terminal makes it, like any print."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                item = self._queue.popleft()
            if not isinstance(item, Output):
                item()
                continue
            _write(item)
            with self._changed:
                self.written += 1
                self._waiting -= sum(map(len, item.lines))
                left_out, self._left_out = self._left_out, LeftOut(0, 0)
            if left_out.lines:
                _write(Output("stderr", "", [left_out.explain()]))


class LeftOut(NamedTuple):
    """Lines that were not shown."""

    lines: int
    characters: int

    def explain(self) -> str:
        return (
            f"monarch: {self.lines} lines ({self.characters} characters) of output were left out, as what had come before "
            "was not read from this program's stdout or stderr in time"
        )


def _write(output: Output) -> None:
    file = sys.stderr if output.stream == "stderr" else sys.stdout
    if file is None:
        return
    text = "\n".join(output.prefix + line for line in output.lines) + output.end
    try:
        try:
            file.write(text)
        except UnicodeEncodeError:
            encoding = file.encoding or "ascii"
            file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        file.flush()
    except (
        Exception
    ):  # the terminal is gone, the file was closed, or what the program has put in its place cannot write
        pass
