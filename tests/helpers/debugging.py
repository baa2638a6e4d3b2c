"""Someone at the debugger: in this process, or with `monarch debug` at a pseudo-terminal of their
own.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

from helpers.waiting import PATIENCE, wait_until
from monarch.actor import context
from monarch.debugger.console import Console, Terminal
from monarch.debugger.protocol import Row

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>])")


class Person(Terminal):
    """Types at a `Console` of this process, and reads what comes.

    Attributes:
        seen: All that was shown.
    """

    def __init__(self) -> None:
        self.seen = ""
        self._read = 0
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._console = Console(context().actor_instance.actor_id.proc_id, self)
        self._thread = threading.Thread(target=self._console.run, daemon=True)
        self._thread.start()

    # as a terminal

    def read(self, prompt: str, complete: Callable[[str, int, int], list[str]]) -> str:
        self.write(prompt)
        self.complete = complete
        line = self._lines.get()
        if line is None:
            raise EOFError
        return line

    def write(self, text: str) -> None:
        self.seen += text

    # as a person

    def type(self, *lines: str) -> None:
        for line in lines:
            self._lines.put(line)

    def expect(self, text: str) -> str:
        """Wait until this is shown, behind what was expected before; all that came up to its
        end.
        """

        def shown() -> bool:
            return text in self.seen[self._read :]

        try:
            wait_until(shown, what=text)
        except AssertionError:
            raise AssertionError(
                f"{text!r} was not shown; but:\n{self.seen[self._read :]}"
            ) from None
        end = self.seen.index(text, self._read) + len(text)
        came, self._read = self.seen[self._read : end], end
        return came

    def rows(self) -> list[Row]:
        return self._console.rows()

    def wait_stopped(self, count: int = 1, since: Sequence[Row] = ()) -> list[Row]:
        """Wait until so many ranks have stopped, elsewhere than they had in earlier rows."""
        earlier = {(row.number, row.place) for row in since}

        def stopped() -> list[Row]:
            rows = [row for row in self.rows() if row.stopped]
            rows = [row for row in rows if (row.number, row.place) not in earlier]
            return rows if len(rows) == count else []

        return wait_until(stopped, what=f"{count} ranks to stop")

    def leave(self) -> None:
        self._lines.put(None)
        self._lines.put(None)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextmanager
def person() -> Iterator[Person]:
    """Someone at a console of this process, who leaves in the end."""
    someone = Person()
    try:
        yield someone
    finally:
        someone.leave()


class Pty:
    """A program at a pseudo-terminal.

    Args:
        command: What to run.
        env: Variables beside those of this process.
    """

    def __init__(self, command: list[str], **env: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,
            env={
                **os.environ,
                "TERM": "xterm",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                "COLUMNS": "120",
                **env,
            },
        )
        os.close(slave)
        self.seen = ""
        self._read = 0
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the last one has closed the other side
                return
            if not data:
                return
            self.seen += data.decode(errors="replace")

    @property
    def text(self) -> str:
        return _ESCAPES.sub("", self.seen).replace("\r", "")

    def type(self, line: str, end: str = "\r") -> None:
        os.write(self._master, (line + end).encode())

    def expect(self, text: str) -> str:
        try:
            wait_until(lambda: text in self.text[self._read :], what=text)
        except AssertionError:
            raise AssertionError(
                f"{text!r} was not shown; but:\n{self.text[self._read :]}"
            ) from None
        end = self.text.index(text, self._read) + len(text)
        came, self._read = self.text[self._read : end], end
        return came

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join(PATIENCE)
        os.close(self._master)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def at_terminal(command: list[str], **env: str) -> Iterator[Pty]:
    program = Pty(command, **env)
    try:
        yield program
    finally:
        program.end()


@contextmanager
def monarch_debug(program: int | None = None, **env: str) -> Iterator[Pty]:
    """`monarch debug` of this process, or of another program."""
    command = [
        sys.executable,
        "-m",
        "monarch.tools",
        "debug",
        "--program",
        str(program or os.getpid()),
    ]
    with at_terminal(command, **env) as terminal:
        yield terminal
