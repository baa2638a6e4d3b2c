"""Runs a user's script in an interpreter of its own, the way a user does, and says what it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from helpers.leaks import describe

TAG = "MONARCH_TEST_SCRIPT"


@dataclass(frozen=True)
class ScriptResult:
    stdout: str
    stderr: str
    exit_code: int
    """As subprocess has it: minus the signal's number when a signal ended the script."""
    duration: float
    """Seconds from start to end."""
    after_signal: float | None
    """Seconds from `signal_after`'s signal to the end of the script; None if none was sent."""
    left_behind: list[str] = field(default_factory=list)
    """Processes of the script that were still there `settle` seconds after it ended (they have been killed since)."""

    def __str__(self) -> str:
        return (
            f"exit code {self.exit_code} after {self.duration:.2f} s\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
            f"\n--- left behind: {self.left_behind}"
        )


def _drop_tests_from_path(environment: dict[str, str]) -> None:
    """Entries that the caller of the test run has set stay: the checkout under test may be found by them."""
    tests = str(Path(__file__).parent.parent)
    entries = [entry for entry in environment.pop("PYTHONPATH", "").split(os.pathsep) if entry and entry != tests]
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)


def processes_tagged(tag: str) -> list[int]:
    """Processes that inherited the script's environment, wherever they are in the process tree."""
    needle = f"{TAG}={tag}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if needle in environment.split(b"\0"):
            found.append(int(entry))
    return found


def _pump(stream: IO[str], lines: list[str], seen: threading.Event, text: str | None) -> None:
    for line in stream:
        lines.append(line)
        if text is not None and text in line:
            seen.set()


def run_script(
    source: str,
    *,
    timeout: float = 40.0,
    cwd: Path | None = None,
    files: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    python_args: Sequence[str] = (),
    signal_after: tuple[str, signal.Signals] | None = None,
    settle: float = 5.0,
) -> ScriptResult:
    """Writes `source` (dedented) to a file and runs it.

    Args:
        timeout: seconds until the script counts as hung: it is killed, AssertionError.
        cwd: working directory; by default an empty one that is *not* the script's.
        files: further files next to the script, name to text.
        env: changes to the environment.
        python_args: for the interpreter, before the script.
        signal_after: `(text, signal)`: sends the signal to the script's process group, as a terminal does for Ctrl-C, once a line
            with that text is on its stdout.
        settle: seconds that the script's other processes have to go away after it.
    """
    tag = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home_of_the_script")
        elsewhere = Path(folder, "working_directory")
        home.mkdir()
        elsewhere.mkdir()
        script = home / "script.py"
        script.write_text(textwrap.dedent(source))
        for name, text in (files or {}).items():
            (home / name).write_text(textwrap.dedent(text))
        environment = {**os.environ, TAG: tag, **(env or {})}
        if "PYTHONPATH" not in (env or {}):
            _drop_tests_from_path(environment)  # the test run puts them there; a user has none
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *python_args, str(script)],
            cwd=cwd or elsewhere,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None and process.stderr is not None
        out: list[str] = []
        err: list[str] = []
        seen = threading.Event()
        awaited = signal_after[0] if signal_after else None
        readers = [
            threading.Thread(target=_pump, args=(process.stdout, out, seen, awaited), daemon=True),
            threading.Thread(target=_pump, args=(process.stderr, err, seen, None), daemon=True),
        ]
        for reader in readers:
            reader.start()
        signalled = None
        hung = False
        try:
            if signal_after is not None:
                deadline = started + timeout
                while not seen.wait(0.02):
                    if process.poll() is not None or time.monotonic() > deadline:
                        break
                if seen.is_set():
                    signalled = time.monotonic()
                    os.killpg(process.pid, signal_after[1])
            process.wait(max(0.1, started + timeout - time.monotonic()))
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            ended = time.monotonic()
            if process.poll() is None:
                process.kill()
                process.wait()
        left = _wait_gone(tag, settle)
        for reader in readers:
            reader.join(5.0)
        process.stdout.close()
        process.stderr.close()
        result = ScriptResult(
            "".join(out),
            "".join(err),
            process.returncode,
            ended - started,
            None if signalled is None else ended - signalled,
            left,
        )
    assert not hung, f"the script had not ended after {timeout} s\n{result}"
    assert signal_after is None or signalled is not None, f"never printed {awaited!r}\n{result}"
    return result


def _wait_gone(tag: str, settle: float) -> list[str]:
    deadline = time.monotonic() + settle
    while pids := processes_tagged(tag):
        if time.monotonic() > deadline:
            left = [describe(pid) for pid in pids]
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return left
        time.sleep(0.02)
    return []
