"""Writes log files.

Lines in, ``<folder>/<machine>/<mesh>_<rank>.log`` and ``.jsonl`` out, on a thread of its own.

A slow disk holds back only the procs that have lines waiting for it, one by one. A disk that is
full, or does not answer, holds back none: lines are missing in the files then, which is said, and
it is tried again.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path

from .._core.plane import Note, Output, Source
from .._ours import opened
from .._rotating_file import RotatingFile
from .._words import machine_of
from .line import log_line

_MOST_WAITING = 1 << 20  # characters of one proc that wait for the disk
# seconds without a write after which procs don't wait for the disk any more, and after which a
# failed one is tried again
_STUCK = 10.0
_CLOSE_BOUND = 5.0  # seconds that the last lines get
_MOST_OPEN = 200  # ranks with open files
_LONGEST_NAME = 100  # bytes
# errors of one path, that other ranks need not have
_OF_A_PATH = {None, errno.ENAMETOOLONG, errno.EISDIR, errno.ELOOP, errno.EACCES}

Room = Callable[[], None]
CallLater = Callable[[float, Callable[[], None]], object]


class LogFiles:
    """The files of one job, or program, on this host.

    Args:
        folder: They are in ``<folder>/<machine>``.
        job: Its id, for the lines.
        size: Bytes after which a file is put aside.
        count: How many files there are of each kind, with the current one.
        tell: Called with a text for the user when lines can't be written, and when they can be
            again.
        call_later: Calls a function after so many seconds, on another thread than that of these
            files.
        root: A folder above that the user has chosen; see `opened`.

    Attributes:
        job: Its id.
        written: The files of JSON lines that this has written to, by their paths before rotation.
    """

    def __init__(
        self,
        folder: Path,
        job: str,
        size: int,
        count: int,
        tell: Callable[[str], None],
        call_later: CallLater,
        root: str = "",
    ) -> None:
        self._folder = folder
        self._root = root
        self.job = job
        self._size = size
        self._count = count
        self._tell = tell
        self._call_later = call_later
        self._changed = threading.Condition()
        self._queue: deque[Output | Callable[[], None]] = deque()
        self._waiting: dict[str, int] = {}  # characters, by process
        self._rooms: dict[str, Room] = {}
        # when something was written last, or there was nothing to write
        self._moved = time.monotonic()
        self._busy = False
        self._closed = False
        self._files: dict[Path, _RankFiles] = {}
        self.written: set[Path] = set()
        self._failed: float | None = None  # when writing failed last
        self._alone: set[Path] = set()  # what could not be written though others could
        self._missing = 0  # lines
        self._thread = threading.Thread(target=self._run, name="monarch-log-files", daemon=True)
        self._thread.start()

    def put(self, output: Output, room: Room) -> bool:
        """Have lines written; see `OutputSink.put`."""
        name, size = output.source.proc, output.size
        with self._changed:
            if self._is_stuck:
                self._missing += output.line_count
                return True
            self._queue.append(output)
            waiting = self._waiting[name] = self._waiting.get(name, 0) + size
            self._changed.notify()
            if waiting <= _MOST_WAITING:
                return True
            self._rooms[name] = room
            return False

    def place_of(self, source: Source) -> str:
        """Return the path of the text file of a proc."""
        return str(self._base(source)) + ".log"

    def ended(self, source: Source) -> None:
        """Close the files of a proc when all is written that was put."""
        with self._changed:
            self._queue.append(lambda: self._close(self._base(source)))
            self._changed.notify()

    def flush(self, then: Callable[[], None]) -> None:
        """Call `then`, on any thread, when all is written or the disk turns out to hang."""
        # who takes it calls it: the disk may go on in the moment in which that is given up
        waiting = deque([then])
        with self._changed:
            self._queue.append(lambda: _call(waiting))
            self._changed.notify()
        self._wait_no_longer(waiting)

    def _wait_no_longer(self, waiting: deque[Callable[[], None]]) -> None:
        """Than until the disk hangs."""
        with self._changed:
            stuck = self._is_stuck
        if stuck:
            _call(waiting)
        elif waiting:
            self._call_later(_STUCK, lambda: self._wait_no_longer(waiting))

    def close(self) -> None:
        """Write the queued lines, and end.

        A disk is not waited for longer than some seconds.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_CLOSE_BOUND)

    @property
    def _is_stuck(self) -> bool:
        return self._busy and time.monotonic() - self._moved > _STUCK

    def _base(self, source: Source) -> Path:
        name = "".join(
            "_" if character in "/\0" or character < " " else character for character in source.mesh
        )
        name = name.encode(errors="replace")[:_LONGEST_NAME].decode(errors="ignore")
        return self._folder / machine_of(source.host) / f"{name}_{source.rank}"

    # on the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    break
                items = list(self._queue)
                self._queue.clear()
                self._busy = True
                self._moved = time.monotonic()
            outputs = [item for item in items if isinstance(item, Output)]
            self._write(outputs)
            for item in items:
                if not isinstance(item, Output):
                    item()
            self._written(outputs)
        for file in self._files.values():
            file.close()

    def _written(self, outputs: list[Output]) -> None:
        rooms: list[Room] = []
        with self._changed:
            self._moved = time.monotonic()
            for output in outputs:
                name = output.source.proc
                self._waiting[name] -= output.size
                if not self._waiting[name]:
                    del self._waiting[name]
                if self._waiting.get(name, 0) <= _MOST_WAITING // 2 and name in self._rooms:
                    rooms.append(self._rooms.pop(name))
        for room in rooms:
            room()

    def _write(self, outputs: list[Output]) -> None:
        if self._failed is not None and time.monotonic() - self._failed < _STUCK:
            self._miss(outputs)
            return
        together: dict[Path, list[Output]] = {}
        for output in outputs:
            together.setdefault(self._base(output.source), []).append(output)
        for base, of_one in together.items():
            try:
                self._file(base).write(text_of(of_one), json_of(of_one, self.job))
            except Exception as error:
                if isinstance(error, OSError) and error.errno not in _OF_A_PATH:
                    self._fail(error)
                    self._miss(of_one)
                else:
                    self._fail_alone(base, error)
            else:
                self._moved = time.monotonic()
                self._alone.discard(base)
                self._recovered()

    def _file(self, base: Path) -> _RankFiles:
        file = self._files.pop(base, None)
        if file is not None and file.is_gone:
            file.close()
            file = None
        if file is None:
            if len(self._files) >= _MOST_OPEN:
                self._close(next(iter(self._files)))
            file = _RankFiles(base, self._root, self._size, self._count)
            self.written.add(file.lines)
        self._files[base] = file  # the one used last is the last
        return file

    def _close(self, base: Path) -> None:
        file = self._files.pop(base, None)
        if file is not None:
            file.close()

    def _fail(self, error: OSError) -> None:
        if self._failed is None:
            self._tell(
                f"monarch: no log files are written in {self._folder}: {error.strerror or error};"
                f" it is tried again every {_STUCK:g} s"
            )
        self._failed = time.monotonic()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _fail_alone(self, base: Path, error: Exception) -> None:
        """Report missing lines of this rank alone. It is tried again with the next."""
        if base not in self._alone:
            self._tell(
                f"monarch: lines are missing in {base}.log:"
                f" {getattr(error, 'strerror', '') or repr(error)}"
            )
        self._alone.add(base)
        self._close(base)

    def _miss(self, outputs: list[Output]) -> None:
        with self._changed:
            self._missing += sum(output.line_count for output in outputs)

    def _recovered(self) -> None:
        with self._changed:
            missing, self._missing = self._missing, 0
        self._failed = None
        if missing:
            self._tell(
                f"monarch: log files are written in {self._folder} again; {missing:,} lines are"
                " missing in them"
            )


def _call(waiting: deque[Callable[[], None]]) -> None:
    try:
        then = waiting.popleft()
    except IndexError:  # another thread has
        return
    then()


class _RankFiles:
    """The two files of a rank, and those put aside.

    Attributes:
        lines: That of lines as JSON.
    """

    def __init__(self, base: Path, root: str, size: int, count: int) -> None:
        folder = partial(opened, base.parent, make=True, root=root)
        # another worker of this machine may write for a mesh of the same name
        for number in range(1, 1000):
            name = base.name if number == 1 else f"{base.name}-{number}"
            self._json = RotatingFile(folder, f"{name}.jsonl", size, count)
            if self._json.locked:
                break
            self._json.close()
        self.lines = base.with_name(f"{name}.jsonl")
        try:
            self._text = RotatingFile(folder, f"{name}.log", size, count)
        except BaseException:
            self._json.close()
            raise

    @property
    def is_gone(self) -> bool:
        """True if one of the files was removed."""
        return self._text.is_gone or self._json.is_gone

    def write(self, text: str, lines: str) -> None:
        self._text.write(text)
        self._json.write(lines)

    def close(self) -> None:
        self._json.close()
        self._text.close()


# the written text: a few calls for each run of lines, however many lines it has


def text_of(outputs: Iterable[Output]) -> str:
    """Return the lines of outputs for people: the time, then the text."""
    pieces: list[str] = []
    for output in outputs:
        for note, text in output.runs:
            said = _clock(note.time or output.time) + " "
            pieces += [said, text if note.logger else text.replace("\n", "\n" + said), "\n"]
    return "".join(pieces)


def json_of(outputs: Iterable[Output], job: str) -> str:
    """Return what `LogLine.to_json` returns for each line of outputs, with newlines."""
    pieces: list[str] = []
    for output in outputs:
        for note, text in output.runs:
            before, after = _around(output, note, job)
            if note.logger:
                pieces += [before, _quoted(text), after]
            elif "\\" in text:
                for line in text.split("\n"):
                    pieces += [before, _quoted(line), after]
            else:  # each backslash is of the quotation
                lines = _quoted(text).replace("\\n", f'"{after}{before}"')
                pieces += [before, lines, after]
    return "".join(pieces)


def _around(output: Output, note: Note, job: str) -> tuple[str, str]:
    before, _, after = log_line(output, note, "\0", job).to_json().partition('"\\u0000"')
    return before, after + "\n"


def _clock(seconds: float) -> str:
    parts = time.localtime(seconds)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', parts)}.{int(seconds % 1 * 1000):03}"
