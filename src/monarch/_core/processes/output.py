"""The output of procs: lines, from the pipes that the host agent reads to the client's terminal.

`lines` (agent) keeps them whole; `Printer` (client) writes each in one piece, on a thread of its own, so that a slow
terminal slows nothing else. For what is shown before an answer, see `unshown`.
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
from typing import Protocol

from ... import config
from ..._lazy import lazy_logger
from ..._namedtuple import NamedTuple
from ..hub.prints import Note
from ..wire.address import ProcAddress

logger = lazy_logger("monarch.runtime")

_LIMIT = 64 << 20  # characters that wait for whoever reads the client's output

Run = tuple[Note, list[str]]
"""Lines that follow each other, and who said all of them. A record of `logging` is one line, with newlines in it."""


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
    """Some lines of one proc.

    Attributes:
        source: Which.
        stream: ``"stdout"`` or ``"stderr"``, to which records of `logging` were written as well.
        time: When the agent has read them, in seconds since the epoch.
        runs: The lines, without newlines.
        end: What follows the last of them: nothing, after a prompt.
        collect: Where the client is to collect them before it shows them: the id of the mesh, and for how many seconds.
    """

    source: Source
    stream: str
    time: float
    runs: list[Run]
    end: str = "\n"
    collect: tuple[str, float] | None = None

    @property
    def lines(self) -> Iterator[str]:
        """The lines, whoever said them."""
        return (text for _, texts in self.runs for text in texts)

    @property
    def size(self) -> int:
        """How many characters it has."""
        return sum(map(len, self.lines))

    def to_text(self) -> str:
        """As it is shown where nothing else is asked for: with mesh and rank in front of each line if several procs print."""
        text = "\n".join(self.lines)
        if not self.source.alone and config.value("prefix_with_rank"):
            prefix = f"[{self.source.mesh} {self.source.rank}] "
            text = prefix + text.replace("\n", "\n" + prefix)
        return text + self.end


class OutputSink(Protocol):
    """Takes the output of procs in the agent, beside their client. Used on the I/O thread: it never blocks."""

    def put(self, output: Output, room: Callable[[], None]) -> bool:
        """Take whole lines.

        Args:
            output: They are taken, whatever is returned.
            room: Called, on any thread, when there is room again.

        Returns:
            Whether there is room for more of that proc, which waits otherwise.
        """

    def place_of(self, source: Source) -> str:
        """Where a person finds the lines of a proc."""

    def ended(self, source: Source) -> None:
        """A proc has ended, and all its lines were put; it may start again."""

    def flush(self, then: Callable[[], None]) -> None:
        """Call `then`, on any thread, when all is written that was put."""

    def close(self) -> None:
        """Write what was put, within bounds, and end."""


class Mark(NamedTuple):
    """Stands in a host's stream of output behind all that was printed there before somebody asked for it."""

    agent: ProcAddress
    number: int


class View(Protocol):
    """Shows outputs where they are not simply written, on the printer's thread.

    Attributes:
        due: When `expire` has something to show, as `time.monotonic` counts.
    """

    @property
    def due(self) -> float | None: ...
    def show(self, output: Output, /) -> None: ...
    def expire(self) -> None: ...
    def flush(self) -> None: ...


def make_view(write: Callable[[str, str], None]) -> View:
    raise NotImplementedError  # replaced by the public face: how a terminal looks, and what is collected, is a plane's matter


class Printer:
    """Writes to the client's ``sys.stdout`` and ``sys.stderr`` as they are at that moment, on a thread of its own.

    What is not written yet is bounded: where nobody reads what the client prints, lines beyond `_LIMIT` are left out, and
    counted.
    """

    def __init__(self) -> None:
        _keep_lines_whole(sys.stdout, sys.stderr)
        self._queue: deque[Output | Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._waiting = 0  # characters
        self._left_out = LeftOut(0, 0)
        self._closed = False
        self.show: Callable[[Output], None] = self._show
        """Writes what was put, on the thread of this printer."""
        self._view: View | None = None
        self.written = 0
        """How many outputs were written."""
        self._thread = threading.Thread(target=self._run, name="monarch-output", daemon=True)
        self._thread.start()  # with the client: later, the system may have no thread to give

    def put(self, item: Output | Callable[[], object]) -> None:
        """Have something written; or called, when all that was put before it is written."""
        with self._changed:
            if isinstance(item, Output):
                size = item.size
                if self._waiting + size > _LIMIT:
                    lines = self._left_out.lines + sum(len(texts) for _, texts in item.runs)
                    self._left_out = LeftOut(lines, self._left_out.characters + size)
                    return
                self._waiting += size
            self._queue.append(item)
            self._changed.notify()

    def flush(self) -> None:
        """Write what is held back to be shown together with more. Only to be called on the thread of this printer."""
        if self._view is not None:
            self._view.flush()

    def close(self) -> None:
        """Write everything that was put, and end the thread. Waits as long as the terminal makes it, like any print."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue and not self._closed:
                    self._changed.wait(self._patience())
                item = self._queue.popleft() if self._queue else None
                ended = self._closed and item is None
            if ended:
                _tried(self.flush)
                return
            if self._view is not None and self._patience() == 0.0:
                _tried(self._view.expire)
            if not isinstance(item, Output):
                if item is not None:
                    _tried(item)
                continue
            if not _tried(self.show, item):
                show(item)
            with self._changed:
                self.written += 1
                self._waiting -= item.size
                left_out, self._left_out = self._left_out, LeftOut(0, 0)
            if left_out.lines:
                write("stderr", left_out.explain() + "\n")

    def _show(self, output: Output) -> None:
        """Write an output as it is, unless something else is asked for, now or from now on."""
        if output.collect is None and _is_plain(output.stream):
            show(output)
        else:
            self._view = make_view(write)
            self.show = self._view.show
            self._view.show(output)

    def _patience(self) -> float | None:
        """Seconds until something that is held back is to be shown."""
        due = self._view.due if self._view is not None else None
        return None if due is None else max(0.0, due - time.monotonic())


class LeftOut(NamedTuple):
    """Lines that were not shown."""

    lines: int
    characters: int

    def explain(self) -> str:
        return (
            f"monarch: {self.lines} lines ({self.characters} characters) of output were left out, as what had come before "
            "was not read from this program's stdout or stderr in time"
        )


def show(output: Output) -> None:
    """Write an output as it is where nothing else was asked for."""
    write(output.stream, output.to_text())


def _tried(action: Callable[..., object], *args: object) -> bool:
    """Run `action`, and return whether it succeeded. A progress bar that can't draw itself must not end the thread:
    lines count more."""
    try:
        action(*args)
    except Exception:
        logger.exception("output could not be shown as it should")
        return False
    return True


def _keep_lines_whole(*streams: object) -> None:
    """With ``PYTHONUNBUFFERED``, `print` writes its text and the end of the line one by one: a rank's line comes in between.

    Streams of that kind write line by line from here on, as they do on a terminal. The program's own objects stay in place.
    """
    for stream in streams:
        # only Python's own: what a program, or a notebook, has put in their place is its concern
        if type(stream) is io.TextIOWrapper and stream.write_through:
            with suppress(OSError, ValueError):  # nobody reads it, or it is closed
                stream.reconfigure(line_buffering=True, write_through=False)
                os.register_at_fork(before=functools.partial(_flush, stream))  # or both write what has no end of a line


def _flush(stream: io.TextIOWrapper) -> None:
    with suppress(Exception):
        stream.flush()


def _is_plain(stream: str) -> bool:
    if config.value("log_format") != "text" or os.environ.get("FORCE_COLOR"):
        return False
    try:
        return not getattr(sys, stream).isatty()
    except Exception:  # there is none, or the program has put something in its place
        return True


def _short_pieces(text: str) -> Iterator[str]:
    """Whole lines, as many as the system takes in one piece; a longer line by itself."""
    most = select.PIPE_BUF if text.isascii() else select.PIPE_BUF // 4  # characters
    begin = 0
    while begin < len(text):
        end = text.rfind("\n", begin, begin + most) + 1 or text.find("\n", begin + most) + 1 or len(text)
        yield text[begin:end]
        begin = end


def write(stream: str, text: str) -> None:
    """Write to what is ``sys.stdout`` or ``sys.stderr`` now, each line in one piece; nothing is raised."""
    file = sys.stderr if stream == "stderr" else sys.stdout
    if file is None:
        return
    # where no buffer has a lock, the system keeps short writes whole, and no others
    unlocked = isinstance(getattr(file, "buffer", None), io.RawIOBase)
    try:
        for piece in _short_pieces(text) if unlocked else (text,):
            try:
                file.write(piece)
            except UnicodeEncodeError:
                encoding = file.encoding or "ascii"
                file.write(piece.encode(encoding, "backslashreplace").decode(encoding))
        file.flush()
    except Exception:
        # the terminal is gone, the file was closed, or what the program has put in its place cannot write
        pass
