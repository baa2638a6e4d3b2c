"""The output of procs: lines, from the pipes that the host agent reads to the client's terminal.

`lines` (agent) keeps them whole; `Printer` (client) writes each in one piece, on a thread of its
own, so that a slow terminal slows nothing else. For output shown before an answer, see
`pending_output`.
"""

from __future__ import annotations

import functools
import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Protocol

from ... import config
from ..._lazy import lazy_logger
from ..._namedtuple import NamedTuple
from ..extension import View, output_view
from ..hub.prints import Note
from ..wire.address import ProcAddress

logger = lazy_logger("monarch.runtime")

_LIMIT = 64 << 20  # characters that wait for the reader of the client's output
_AT_ONCE = 64 << 10  # characters that are written in one piece, if so many wait

Run = tuple[Note, str]
"""Lines that follow each other, with newlines between them, and who said all of them.

A record of `logging` is one line.
"""


class Source(NamedTuple):
    """The proc that has printed.

    Attributes:
        mesh: Name of its mesh.
        rank: Its rank there.
        point: Its coordinates, such as ``"hosts=1,gpus=3"``.
        host: Name of the machine.
        incarnation: How often it has been started before.
        size: Number of ranks of the mesh.
        alone: Whether no other proc of its host can print.
        proc: Name of its process.
    """

    mesh: str
    rank: int
    point: str
    host: str
    incarnation: int
    size: int
    alone: bool
    proc: str = ""


class Output(NamedTuple):
    """Lines of one proc, which were read together.

    Attributes:
        source: Which.
        stream: ``"stdout"`` or ``"stderr"``, to which records of `logging` were written as well.
        time: When the agent has read them, in seconds since the epoch.
        runs: The lines.
        end: What follows the last of them: nothing, after a prompt.
        collect: Where the client is to collect them before it shows them: the id of the mesh, and
            for how many seconds.
    """

    source: Source
    stream: str
    time: float
    runs: list[Run]
    end: str = "\n"
    collect: tuple[str, float] | None = None

    @property
    def said(self) -> Iterator[tuple[Note, list[str]]]:
        """The lines, by author."""
        return ((note, [text] if note.logger else text.split("\n")) for note, text in self.runs)

    @property
    def line_count(self) -> int:
        """How many lines it has."""
        return sum(len(texts) for _, texts in self.said)

    @property
    def size(self) -> int:
        """How many characters it has."""
        return sum(len(text) for _, text in self.runs)

    def to_text(self) -> str:
        """As it is shown where nothing else is asked for: with mesh and rank in front of each line
        if several procs print.
        """
        text = "\n".join(text for _, text in self.runs)
        if not self.source.alone and config.value("prefix_with_rank"):
            prefix = f"[{self.source.mesh} {self.source.rank}] "
            text = prefix + text.replace("\n", "\n" + prefix)
        return text + self.end


class OutputSink(Protocol):
    """Takes the output of procs in the agent, beside their client.

    Used on the I/O thread: it never blocks.
    """

    def put(self, output: Output, room: Callable[[], None]) -> bool:
        """Take whole lines.

        Args:
            output: Taken in either case.
            room: Called, on any thread, when there is room again.

        Returns:
            Whether there is room for more of that proc, which waits otherwise.
        """

    def place_of(self, source: Source) -> str:
        """The place at which a person finds the lines of a proc."""

    def ended(self, source: Source) -> None:
        """A proc has ended, and all its lines were put; it may start again."""

    def flush(self, then: Callable[[], None]) -> None:
        """Call `then`, on any thread, when all is written that was put."""

    def close(self) -> None:
        """Write the queued output, within bounds, and end."""


class Mark(NamedTuple):
    """Stands in a host's stream of output behind all that was printed there before it was asked
    for.
    """

    agent: ProcAddress
    number: int


class Printer:
    """Writes to the client's ``sys.stdout`` and ``sys.stderr`` as they are at that moment, on a
    thread of its own.

    The queue is bounded: where the client's output is not read, lines beyond `_LIMIT` are left out,
    and counted.
    """

    def __init__(self) -> None:
        _keep_lines_whole(sys.stdout, sys.stderr)
        self._queue: deque[Output | Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._waiting = 0  # characters
        self._left_out = 0, 0  # lines, and their characters
        self._closed = False
        self._view: View | None = None
        self.written = 0
        """How often something was written."""
        self._thread = threading.Thread(target=self._run, name="monarch-output", daemon=True)
        self._thread.start()  # with the client: later, the system may have no thread to give

    def put(self, *items: Output | Callable[[], object]) -> None:
        """Have something written; or called, when all that was put before it is written."""
        with self._changed:
            for item in items:
                if isinstance(item, Output):
                    size, (lines, characters) = item.size, self._left_out
                    if self._waiting + size > _LIMIT:
                        self._left_out = lines + item.line_count, characters + size
                        continue
                    self._waiting += size
                self._queue.append(item)
            self._changed.notify()

    def flush(self) -> None:
        """Write lines that were kept to be shown together with more.

        Only to be called on the thread of this printer.
        """
        if self._view is not None:
            self._view.flush()

    def close(self) -> None:
        """Write everything that was put, and end the thread.

        Waits as long as the terminal makes it, like any print.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue and not self._closed:
                    self._changed.wait(self._patience())
                action = self._next() if self._queue else None
                ended = self._closed and action is None
            if ended:
                _tried(self.flush)
                return
            if self._view is not None and self._patience() == 0.0:
                _tried(self._view.expire)
            if action is not None:
                _tried(action)

    def _next(self) -> Callable[[], object]:
        """Take the next call; outputs that wait already are written together."""
        first = self._queue.popleft()
        if not isinstance(first, Output):
            return first
        outputs, size = [first], first.size
        # one write for many ranks: a terminal, or a pipe, costs a system call and a wake-up each
        while self._queue and isinstance(item := self._queue[0], Output) and size < _AT_ONCE:
            outputs.append(item)
            size += item.size
            self._queue.popleft()
        return lambda: self._write(outputs, size)

    def _write(self, outputs: list[Output], size: int) -> None:
        for (stream, plain), together in groupby(
            outputs, lambda output: (output.stream, self._is_plain(output))
        ):
            if plain:
                write(stream, "".join(output.to_text() for output in together))
            else:
                for output in together:
                    if not _tried(self._show, output):
                        write(stream, output.to_text())
        with self._changed:
            self.written += 1
            self._waiting -= size
            (lines, characters), self._left_out = self._left_out, (0, 0)
        if lines:
            write(
                "stderr",
                f"monarch: {lines} lines ({characters} characters) of output were left out, as what"
                " had come before was not read from this program's stdout or stderr in time\n",
            )

    def _show(self, output: Output) -> None:
        self._view = self._view or output_view(write)
        if self._view is None:
            write(output.stream, output.to_text())
        else:
            self._view.show(output)

    def _is_plain(self, output: Output) -> bool:
        """Return whether output is written unchanged: no other form is asked for, or was before."""
        as_text = config.value("log_format") == "text" and not os.environ.get("FORCE_COLOR")
        if self._view is not None or output.collect or not as_text:
            return False
        try:
            return not getattr(sys, output.stream).isatty()
        except Exception:  # there is none, or the program has put something in its place
            return True

    def _patience(self) -> float | None:
        """Seconds until something that is held back is to be shown."""
        due = self._view.due if self._view is not None else None
        return None if due is None else max(0.0, due - time.monotonic())


def _tried(action: Callable[..., object], *args: object) -> bool:
    """Run `action`, and return whether it succeeded.

    A progress bar that can't draw itself must not end the thread: lines count more.
    """
    try:
        action(*args)
    except Exception:
        logger.exception("output could not be shown as it should")
        return False
    return True


def _keep_lines_whole(*streams: object) -> None:
    """With ``PYTHONUNBUFFERED``, `print` writes its text and the end of the line one by one: a
    rank's line comes in between.

    Streams of that kind write line by line from here on, as they do on a terminal. The program's
    own objects stay in place.
    """
    for stream in streams:
        # only Python's own: what a program, or a notebook, has put in their place is its concern
        if type(stream) is io.TextIOWrapper and stream.write_through:
            with suppress(OSError, ValueError):  # its reader has gone, or it is closed
                stream.reconfigure(line_buffering=True, write_through=False)
                # or parent and child would both write a buffered line that has no end yet
                os.register_at_fork(before=functools.partial(_flush, stream))


def _flush(stream: io.TextIOWrapper) -> None:
    with suppress(Exception):
        stream.flush()


def _short_pieces(text: str) -> Iterator[str]:
    """Whole lines, as many as the system takes in one piece; a longer line by itself."""
    most = select.PIPE_BUF if text.isascii() else select.PIPE_BUF // 4  # characters
    begin = 0
    while begin < len(text):
        end = (
            text.rfind("\n", begin, begin + most) + 1
            or text.find("\n", begin + most) + 1
            or len(text)
        )
        yield text[begin:end]
        begin = end


def write(stream: str, text: str) -> None:
    """Write to the present ``sys.stdout`` or ``sys.stderr``, each line in one piece; nothing is
    raised.
    """
    file = sys.stderr if stream == "stderr" else sys.stdout
    if file is None:
        return
    # where no buffer has a lock, the system keeps short writes whole, and no others
    unlocked = isinstance(getattr(file, "buffer", None), io.RawIOBase)
    # the terminal may be gone, the file closed, or what the program has put in its place unable to
    # write
    with suppress(Exception):
        for piece in _short_pieces(text) if unlocked else (text,):
            try:
                file.write(piece)
            except UnicodeEncodeError:
                encoding = file.encoding or "ascii"
                file.write(piece.encode(encoding, "backslashreplace").decode(encoding))
        file.flush()
