"""Programs that use jobs: unlike others, they leave processes behind on purpose, until somebody
ends the job.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.leaks import describe
from helpers.scripts import TAG, processes_tagged
from helpers.waiting import wait_until

_PATIENCE = 110  # seconds: less than the limit of a test, so that what the program has said is seen


@dataclass(frozen=True)
class Home:
    """A folder where a user works on jobs, with a folder for temporary files, and all processes
    that began there.
    """

    folder: Path
    temporary: Path
    tag: str

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, TAG: self.tag, "TMPDIR": str(self.temporary), **env}

    def start(
        self, source: str, *args: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a program, given as text, in this folder."""
        return self.popen([self.program(source), *args], env or {})

    def program(self, source: str) -> str:
        """Write a program into this folder; returns its path."""
        text = textwrap.dedent(source)
        script = self.folder / "program.py"
        # another start of it may be about to read the file
        if not script.exists() or script.read_text() != text:
            script.write_text(text)
        return str(script)

    def run(
        self, source: str, *args: str, env: Mapping[str, str] | None = None, exit_code: int = 0
    ) -> str:
        """What the program prints, on stdout and then on stderr; it must end with `exit_code`."""
        return self.finish(self.start(source, *args, env=env), exit_code)

    def monarch(self, *args: str, env: Mapping[str, str] | None = None, exit_code: int = 0) -> str:
        """What the command `monarch` prints."""
        return self.finish(self.popen(["-m", "monarch.tools", *args], env or {}), exit_code)

    def monarch_started(
        self, *args: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the command `monarch`."""
        return self.popen(["-m", "monarch.tools", *args], env or {})

    @contextmanager
    def worker(self, *args: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
        """The address of a worker that `monarch worker` runs for the length of a block."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        worker = self.popen(
            ["-m", "monarch.tools", "worker", "--listen", address, *args], env or {}
        )
        assert worker.stderr is not None
        said = worker.stderr.readline()
        try:
            assert said == f"listening: {address}\n", said + worker.stderr.read()
            yield address
        finally:
            worker.terminate()
            worker.communicate(timeout=60)

    def processes(self) -> list[int]:
        return processes_tagged(self.tag)

    def left(self) -> list[str]:
        """All that is there now but should not be once every job was ended: processes, and
        temporary files.
        """
        return [describe(pid) for pid in self.processes()] + [
            str(path) for path in self.temporary.iterdir()
        ]

    def wait_nothing_left(self) -> None:
        wait_until(
            lambda: not self.left(),
            what=lambda: f"the end of all that the jobs started: {self.left()}",
        )

    def end_everything(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def popen(
        self, args: list[str], env: Mapping[str, str], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        """Start Python with these arguments, in this folder."""
        return subprocess.Popen(
            [sys.executable, *args],
            cwd=self.folder,
            env=self.environment(env),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, program: subprocess.Popen[str], exit_code: int) -> str:
        """Wait for the end of a program, which must be `exit_code`; what it has printed."""
        try:
            out, err = program.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            out, err = program.communicate()
            raise AssertionError(
                f"the program had not ended after {_PATIENCE} s\n{out}\n--- stderr\n{err}"
            ) from None
        assert program.returncode == exit_code, (
            f"exit status {program.returncode}\n{out}\n--- stderr\n{err}"
        )
        return out + err
