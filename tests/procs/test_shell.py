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
from typing import TYPE_CHECKING, Any

import pytest

from helpers.processes import stack_of
from helpers.waiting import is_alive, wait_until
from monarch.actor import this_host
from monarch.job import shell
from monarch.job.remote_shell import _Shell

if TYPE_CHECKING:
    from helpers.jobs import Home

JOB = "from monarch.job import ProcessJob\njob = ProcessJob({'first': 2})\n"
_PATIENCE = 50.0  # seconds
# What a command inherits of the rest of stdin depends on the shell: dash reads on in blocks, bash
# by lines.
READS_BY_LINES = "/bin/bash"

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
    from monarch.job.remote_shell import _typing

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


INTERRUPTED = """
    import sys
    from monarch.actor import this_host
    from monarch.job import shell
    if __name__ == "__main__":
        try:
            shell(this_host())
        except KeyboardInterrupt:
            sys.exit(130)
"""

FULL = """
    import signal, threading
    from types import SimpleNamespace
    from monarch.actor import Channel
    from monarch.job.remote_shell import _typing

    typed, resized = threading.Event(), threading.Event()
    never, reads = Channel.open()

    def write(data):
        typed.set()
        return reads.recv()

    there = SimpleNamespace(
        resize=SimpleNamespace(broadcast=lambda size: resized.set()), write=SimpleNamespace(call_one=write)
    )
    with _typing(there, at_terminal=True):
        print("type", end="\\r\\n", flush=True)
        typed.wait()
        signal.raise_signal(signal.SIGWINCH)
        resized.wait()
    print("over")
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
                raise AssertionError(
                    f"it ended, and {text!r} was never shown: {self.shown}"
                ) from None
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
        # as the kernel does where it is the terminal's foreground
        at.process.send_signal(signal.SIGWINCH)
        at.type("until [ \"$(stty size)\" = '12 34' ]; do sleep 0.05; done; echo re''sized\r")
        at.wait_for("resized")
        at.wait_for("ready> ")
        at.type("sh -c \"echo wai''ting; exec sleep 600\"\r")  # who says that has the terminal
        at.wait_for("waiting")
        at.type("\x03")  # Ctrl-C is for what runs there, not for the program here
        at.wait_for("ready> ")
        at.type("exit 7\r")
        assert at.process.wait(_PATIENCE) == 7


def test_a_new_size_is_sent_by_no_handler_as_what_it_interrupts_may_be_sending(home: Home) -> None:
    with terminal(home, home.program(RESIZED_WHILE_SENDING)) as at:
        at.wait_for("sent Size(columns=77, lines=31)")
        assert at.process.wait(_PATIENCE) == 0


def test_a_new_size_is_sent_while_the_shell_takes_no_input_and_is_not_waited_for(
    home: Home,
) -> None:
    with terminal(home, home.program(FULL)) as at:
        at.wait_for("type")
        at.type("x")
        at.wait_for("over")
        assert at.process.wait(_PATIENCE) == 0


@pytest.mark.parametrize("how", ["interrupted", "nobody reads what it writes"])
def test_a_program_ends_whose_shell_takes_no_more_input(
    home: Home, tmp_path: Path, how: str
) -> None:
    typed = tmp_path / "typed"
    typed.write_text("echo here; exec sleep 600\n" + "#" * 2_000_000)
    if how != "interrupted":
        typed.write_text("trap '' PIPE; while echo here; do sleep 0.05; done\n" + "#" * 2_000_000)
    with typed.open() as stdin:
        process = subprocess.Popen(
            [sys.executable, home.program(INTERRUPTED)], cwd=home.folder, env=home.environment({"SHELL": "/bin/sh"}),
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        if how == "interrupted":
            process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(_PATIENCE) == (130 if how == "interrupted" else 1)
    finally:
        process.kill()
        process.wait()
    home.wait_nothing_left()


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


# four commands, each of which may take its whole patience on a busy machine
@pytest.mark.timeout(300)
def test_without_a_terminal_commands_are_read_from_stdin(home: Home) -> None:
    (home.folder / "cluster.py").write_text(JOB)
    home.monarch("apply", "cluster.job")

    def piped(text: str, *args: str, status: int) -> tuple[str, str]:
        """Its output and its errors."""
        process = subprocess.Popen(
            [sys.executable, "-m", "monarch.tools", "shell", "-e", f"SHELL={READS_BY_LINES}", *args],
            cwd=home.folder, env=home.environment({}), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = process.communicate(text, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            where = [stack_of(pid) for pid in home.processes()]
            process.kill()
            raise AssertionError(
                "\n".join([f"{text!r} has not ended: {process.communicate()}", *where])
            ) from None
        assert process.returncode == status, (
            f"{text!r}: status {process.returncode}, {out!r}, {err}"
        )
        return out, err

    # `cat` has the rest of it, and then its end
    out, err = piped("cat\nsecond line\n", "-e", "NAME=x", "--point", "hosts=1", status=0)
    assert out == "second line\n", err
    # what it leaves behind holds up nobody
    out, err = piped("echo $NAME; sleep 600 & kill -9 $$\n", "-e", "NAME=x", status=128 + 9)
    assert out == "x\n", err
    _, err = piped("true\n", "--workdir", "/no/such/folder", status=1)
    assert "error: [Errno 2]" in err and "Traceback" not in err
    piped("exit 3\n", "--kill", status=3)
    home.wait_nothing_left()


def test_a_shell_is_for_one_host(home: Home) -> None:
    said = home.run("""
        from monarch.job import ProcessJob, shell
        if __name__ == "__main__":
            job = ProcessJob({"hosts": 2})
            try:
                shell(job.state(cached_path=None).hosts)
            except ValueError as error:
                print(error)
            job.kill()
        """)
    assert "shell requires a singleton HostMesh" in said


@contextmanager
def stdin_of(text: str, folder: Path) -> Iterator[None]:
    """This process reads a text."""
    (folder / "stdin").write_text(text)
    before = os.dup(0)
    try:
        with (folder / "stdin").open() as file:
            os.dup2(file.fileno(), 0)
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.mark.usefixtures("_process_test")
def test_input_and_output_of_any_length_come_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(f"{number}\n" for number in range(1, 200001))
    with stdin_of("seq 1 200000\ncat\n" + lines, tmp_path):
        assert shell(this_host(), {"SHELL": READS_BY_LINES}) == 0
    assert capfd.readouterr().out == lines + lines


@pytest.mark.usefixtures("_process_test")
def test_what_a_shell_leaves_behind_need_not_read_the_rest_of_its_input(tmp_path: Path) -> None:
    (tmp_path / "wanted").touch()
    left = (
        f"setsid sh -c 'while [ -e {tmp_path}/wanted ]; do sleep 0.1; done' <&0 >/dev/null 2>&1 &"
    )
    try:
        with stdin_of(f"{left}\nexit 3\n" + "more\n" * 200_000, tmp_path):
            assert shell(this_host()) == 3
    finally:
        (tmp_path / "wanted").unlink()


def test_what_is_written_just_before_the_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at two descriptors takes one after the other: in between, a shell may write and
    end.
    """
    there: Any = _Shell({}, None, "/", None)
    theirs, (there._output, output) = os.eventfd(1), os.pipe()
    there._ended = theirs
    looks = [lambda: ({theirs}, os.write(output, b"last words"))[0]]
    module = sys.modules[_Shell.__module__]  # the package has a function of that name
    look = module._ready
    monkeypatch.setattr(module, "_ready", lambda *args: looks.pop()() if looks else look(*args))
    try:
        assert there._read() == b"last words"
        assert there._read() == b""
    finally:
        for fd in (theirs, there._output, output):
            os.close(fd)
