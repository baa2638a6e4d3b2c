"""A shell on a host, at a real terminal and without one: `shell`, `monarch shell`."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.waiting import is_alive, wait_until
from monarch.actor import this_host
from monarch.job import shell

if TYPE_CHECKING:
    from helpers.jobs import Home

JOB = "from monarch.job import ProcessJob\njob = ProcessJob({'first': 2})\n"
_PATIENCE = 50.0  # seconds

ALONE = """
    import sys
    from monarch.actor import this_host
    from monarch.job import shell
    if __name__ == "__main__":
        sys.exit(shell(this_host(), {"PS1": "ready> ", "COLOUR": "blue"}))
"""

RESIZED_WHILE_SENDING = """
    import signal, threading
    from types import SimpleNamespace
    from monarch.job.shell import _typing

    lock, sent = threading.Lock(), threading.Event()

    def broadcast(size):
        with lock:  # of the connection
            print("sent", size, end="\\r\\n", flush=True)
            sent.set()

    with _typing(SimpleNamespace(resize=SimpleNamespace(broadcast=broadcast)), at_terminal=True):
        with lock:
            signal.raise_signal(signal.SIGWINCH)
        sent.wait()
"""


class Terminal:
    """A program at a terminal of its own, and who sits there."""

    def __init__(self, home: Home, *args: str) -> None:
        bash = home.folder / "shell"  # without what this machine has its prompt be
        bash.write_text('#!/bin/sh\nexec /bin/bash --norc "$@"\n')
        bash.chmod(0o700)
        self._fd, theirs = pty.openpty()
        self.resize(31, 77)
        self.process = subprocess.Popen(
            [sys.executable, *args], cwd=home.folder, env=home.environment({"SHELL": str(bash), "TERM": "vt100"}),
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.shown = ""

    def resize(self, lines: int, columns: int) -> None:
        import fcntl
        import termios

        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str) -> str:
        """What is shown up to a text; it is not looked at again."""
        end = time.monotonic() + _PATIENCE
        while text not in self.shown:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} was never shown: {self.shown}"
            try:
                self.shown += os.read(self._fd, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended, and {text!r} was never shown: {self.shown}") from None
        before, _, self.shown = self.shown.partition(text)
        return before

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def terminal(home: Home, *args: str) -> Iterator[Terminal]:
    there = Terminal(home, *args)
    try:
        yield there
    finally:
        there.process.kill()
        there.process.wait()
        there.close()


def test_a_shell_at_a_terminal_has_its_size_and_keys_and_gives_its_status(home: Home) -> None:
    with terminal(home, home.program(ALONE)) as at:
        at.wait_for("ready> ")
        at.type("stty size; echo $TERM $COLOUR $PWD; tty; jobs -l; ps -o stat= $$\r")
        shown = at.wait_for("ready> ")
        assert "31 77" in shown and f"vt100 blue {home.folder}" in shown and "/dev/pts/" in shown
        assert "no job control" not in shown
        at.resize(12, 34)
        at.process.send_signal(signal.SIGWINCH)  # as the kernel does where it is the terminal's foreground
        at.type("until [ \"$(stty size)\" = '12 34' ]; do sleep 0.05; done; echo re''sized\r")
        at.wait_for("resized")
        at.wait_for("ready> ")
        at.type("echo wai''ting; sleep 600\r")
        at.wait_for("waiting")
        at.type("\x03")  # Ctrl-C is for what runs there, not for the program here
        at.wait_for("ready> ")
        at.type("exit 7\r")
        assert at.process.wait(_PATIENCE) == 7


def test_a_new_size_is_sent_by_no_handler_as_what_it_interrupts_may_be_sending(home: Home) -> None:
    with terminal(home, home.program(RESIZED_WHILE_SENDING)) as at:
        at.wait_for("sent Size(columns=77, lines=31)")
        assert at.process.wait(_PATIENCE) == 0


def test_a_client_that_is_killed_takes_its_shell_along(home: Home) -> None:
    with terminal(home, home.program(ALONE)) as at:
        at.wait_for("ready> ")
        at.type("trap 'true' TERM; echo process=$$=\r")
        at.wait_for("ready> ")
        at.type("echo again=$$=\r")
        at.wait_for("again=")
        at.wait_for("again=")
        pid = int(at.wait_for("="))
        assert is_alive(pid)
        at.process.kill()
        wait_until(lambda: not is_alive(pid), what="the end of the shell")
    home.wait_nothing_left()


def test_without_a_terminal_commands_are_read_from_stdin(home: Home) -> None:
    (home.folder / "cluster.py").write_text(JOB)
    home.monarch("apply", "cluster.job")

    def piped(text: str, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "monarch.tools", "shell", *args], input=text, capture_output=True, text=True,
            cwd=home.folder, env=home.environment({"SHELL": "/bin/bash"}), timeout=_PATIENCE,
        )  # fmt: skip

    done = piped("cat\nsecond line\n", "-e", "NAME=x", "--point", "hosts=1")
    assert (done.stdout, done.returncode) == ("second line\n", 0)  # `cat` has the rest of it, and then its end
    done = piped("echo $NAME; sleep 600 & kill -9 $$\n", "-e", "NAME=x")
    assert (done.stdout, done.returncode) == ("x\n", 128 + 9)  # what it leaves behind holds up nobody
    done = piped("true\n", "--workdir", "/no/such/folder")
    assert done.returncode == 1 and "error: [Errno 2]" in done.stderr and "Traceback" not in done.stderr
    assert piped("exit 3\n", "--kill").returncode == 3
    home.wait_nothing_left()


def test_a_shell_is_for_one_host(home: Home) -> None:
    said = home.run(
        """
        from monarch.job import ProcessJob, shell
        if __name__ == "__main__":
            job = ProcessJob({"hosts": 2})
            try:
                shell(job.state(cached_path=None).hosts)
            except ValueError as error:
                print(error)
            job.kill()
        """
    )
    assert "shell requires a singleton HostMesh" in said


@pytest.mark.usefixtures("_process_test")
def test_output_of_any_length_comes_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "commands").write_text("seq 1 200000\n")
    before = os.dup(0)
    try:
        with (tmp_path / "commands").open() as file:
            os.dup2(file.fileno(), 0)
        assert shell(this_host()) == 0
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert capfd.readouterr().out == "".join(f"{number}\n" for number in range(1, 200001))
