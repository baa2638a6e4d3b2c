"""A program that runs, and what is typed at another terminal meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from helpers.scripts import TAG, TESTS, package_path, wait_tag_gone

_SETTLE = 10.0  # seconds
_PATIENCE = 90.0  # seconds for a line


@contextmanager
def killed_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """Ends a wait for the output of a process that says nothing."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class RunningProgram:
    """Attributes:
    process: That of its script; it may be killed.
    """

    def __init__(self, process: subprocess.Popen[str], environment: Mapping[str, str]) -> None:
        self.process = process
        self._environment = environment

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, text: str) -> str:
        """The next line of its output that holds a text."""
        assert self.process.stdout is not None
        with killed_after(_PATIENCE, self.process):
            for line in self.process.stdout:
                if text in line:
                    return line.strip()
        raise AssertionError(
            f"it ended with status {self.process.wait()} and never printed {text!r}:"
            f" {self._complaint()}"
        )

    def other(
        self, source: str, *args: str, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """What another program says, which runs to its end."""
        return self._run(
            [
                sys.executable,
                "-c",
                f"import sys\nsys.path.append({TESTS!r})\n{textwrap.dedent(source)}",
                *args,
            ],
            timeout,
        )

    def monarch(
        self, *args: str, timeout: float = 60.0, typed: str = "", env: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        """What the command `monarch` says at another terminal, which is wide."""
        return self._run([sys.executable, "-m", "monarch.tools", *args], timeout, typed, env)

    def start_monarch(self, *args: str) -> subprocess.Popen[str]:
        """The command `monarch` at another terminal, which goes on."""
        return subprocess.Popen(
            [sys.executable, "-u", "-m", "monarch.tools", *args],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def dashboard(self) -> Iterator[tuple[str, int]]:
        """The link to its dashboard, and the process that serves it; which is ended by Ctrl-C."""
        with self.start_monarch("dashboard", str(self.pid), "--no-browser") as server:
            assert server.stdout is not None
            try:
                yield server.stdout.readline().strip(), server.pid
            finally:
                server.send_signal(signal.SIGINT)

    def _run(
        self, command: list[str], timeout: float, typed: str = "", env: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        environment = {**self._environment, "COLUMNS": "200", **env}
        return subprocess.run(
            command, env=environment, input=typed, capture_output=True, text=True, timeout=timeout
        )

    def end(self) -> int:
        """Let it end: its standard input has an end. Returns its status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)

    def _complaint(self) -> str:
        return self.process.stderr.read() if self.process.stderr is not None else ""


@contextmanager
def running(
    source: str, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[RunningProgram]:
    """A program that runs until its standard input ends; nothing of it, or of who looked at it, may
    be left then.

    Args:
        folder: For the file of its script.
    """
    tag = uuid.uuid4().hex
    script = folder / "train.py"
    script.write_text(f"import sys\nsys.path.append({TESTS!r})\n{textwrap.dedent(source)}")
    environment = {**os.environ, TAG: tag, "PYTHONPATH": package_path(), **(env or {})}
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield RunningProgram(process, environment)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            finally:
                process.kill()
                left = wait_tag_gone(tag, _SETTLE)
    assert left == []
