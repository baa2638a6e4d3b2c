"""A real pseudo-terminal for programs: what a person would see of them."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import struct
import subprocess
import sys
import tempfile
import termios
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from helpers.scripts import GONE_WITHIN, SLACK, TAG, package_path, program, wait_tag_gone
from helpers.waiting import wait_until

SIZE = 50, 120
"""Lines and columns."""


def run_on_terminal(
    source: str, *, env: Mapping[str, str] | None = None, timeout: float = 80.0
) -> str:
    """Runs a script, which may import the helpers, on a terminal of its own, to its good end; what
    it has written there.

    Args:
        env: changes to the environment; none of those that say something on colours are inherited.
        timeout: seconds until it counts as hung.
    """
    tag = uuid.uuid4().hex
    quiet = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    environment = {
        **quiet,
        TAG: tag,
        "PYTHONPATH": package_path(),
        "TERM": "xterm-256color",
        **(env or {}),
    }
    screen, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", *SIZE, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(program(source))
        process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=folder,
            env=environment,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        seen = bytearray()
        try:
            while True:
                try:
                    data = os.read(screen, 65536)
                except OSError:  # nobody has the other end any more
                    break
                if not data:
                    break
                seen += data
            status = process.wait(timeout)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(screen)
        text = seen.decode(errors="replace").replace("\r\n", "\n")
        left = wait_tag_gone(tag, GONE_WITHIN + SLACK)
    assert status == 0, text
    assert left == [], text
    return text


_CONTROL = re.compile(
    r"\x1b\[(?P<numbers>[?<=>]?[0-9;:]*)[ -/]*(?P<what>[@-~])"
    r"|\x1b[\]P_^].*?(?:\x07|\x1b\\)|\x1b[()].|\x1b[ -\x27*-OQ-Z\\`-~0-?]|[\x00-\x1a\x7f]",
    re.DOTALL,
)


class Terminal:
    """What a program has drawn on a terminal, by the moves of the cursor that full screens use.

    Args:
        fd: The side of the person.
    """

    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._fd = fd
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # the begin of a control sequence
        self._cells = [[" "] * SIZE[1] for _ in range(SIZE[0])]
        self._row = self._column = 0

    @property
    def text(self) -> str:
        """Its lines, with what has come until now."""
        try:
            while data := os.read(self._fd, 65536):
                self._draw(self._rest + self._decoder.decode(data))
        except OSError:  # nothing has come, or the program has ended
            pass
        return "\n".join("".join(line).rstrip() for line in self._cells)

    @property
    def modes(self) -> list[object]:
        """How it treats what is typed and printed: `termios`, without the speeds."""
        found = termios.tcgetattr(self._fd)
        return [*found[:4], found[6]]

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def wait_for(self, *texts: str) -> None:
        """Wait until all are there, wherever lines are folded."""

        def shown() -> bool:
            told = " ".join(self.text.split())
            assert self.process.poll() is None, f"it has ended:\n{self.text}"
            return all(each in told for each in texts)

        try:
            wait_until(shown, what=f"{texts} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    def _draw(self, text: str) -> None:
        at = 0
        while at < len(text):
            control = _CONTROL.match(text, at)
            if control is not None:
                self._move(control)
                at = control.end()
            elif text[at] == "\x1b":
                break
            else:
                if self._row < SIZE[0] and self._column < SIZE[1]:
                    self._cells[self._row][self._column] = text[at]
                self._column += 1
                at += 1
        self._rest = text[at:]

    def _move(self, control: re.Match[str]) -> None:
        numbers, what = control["numbers"] or "", control["what"]
        if what in ("H", "f"):
            row, _, column = numbers.partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif what == "J":
            self._cells = [[" "] * SIZE[1] for _ in range(SIZE[0])]
        elif control[0] == "\r":
            self._column = 0
        elif control[0] == "\n":
            self._row += 1


@contextmanager
def at_terminal(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Terminal]:
    """A program that has a whole terminal; it is killed at the end, unless it has ended."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", *SIZE, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", **env}
    try:
        with os.fdopen(theirs):
            process = subprocess.Popen(
                command,
                env={name: environment[name] for name in environment if name != "COLUMNS"},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        with process:
            try:
                yield Terminal(ours, process)
            finally:
                process.kill()
    finally:
        os.close(ours)
