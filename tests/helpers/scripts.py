"""Runs a user's script in an interpreter of its own, the way a user does, and says what it left
behind.
"""

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

TESTS = str(Path(__file__).parent.parent)
TAG = "MONARCH_TEST_SCRIPT"
LIMIT = 200.0  # seconds of a script: fewer than a test has, so that its output is shown
# seconds: what a program started is gone this soon after its end, however it ends
GONE_WITHIN = 2.0
SLACK = 13.0  # seconds more, for a machine that runs other things as well


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
    """Processes of the script that were still there `settle` seconds after it ended (they have been
    killed since), and files that it left in its folder for temporary ones.
    """

    def __str__(self) -> str:
        return (
            f"exit code {self.exit_code} after {self.duration:.2f} s\n---"
            f" stdout\n{self.stdout}\n--- stderr\n{self.stderr}\n--- left behind:"
            f" {self.left_behind}"
        )


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


def package_path() -> str:
    """What a script needs on its path: nothing, as a user, but for the package itself where that is
    not installed.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if entry and Path(entry, "monarch").is_dir())


def _pump(stream: IO[str], lines: list[str], news: threading.Condition) -> None:
    for line in stream:
        with news:
            lines.append(line)
            news.notify()


def _send_signals(
    process: subprocess.Popen[str],
    signals: Sequence[tuple[str, signal.Signals]],
    out: list[str],
    news: threading.Condition,
    deadline: float,
) -> list[float]:
    """Send each signal once its text was printed, or stop waiting when the script has ended; when
    they were sent.
    """
    sent: list[float] = []
    for text, number in signals:
        with news:
            while not any(text in line for line in out):
                if process.poll() is not None or time.monotonic() > deadline:
                    return sent
                news.wait(0.1)
        os.killpg(process.pid, number)
        sent.append(time.monotonic())
    return sent


def run_script(
    source: str,
    *,
    timeout: float = LIMIT,
    cwd: Path | None = None,
    files: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    python_args: Sequence[str] = (),
    name: str = "script.py",
    stdin: str | None = "",
    signal_after: tuple[str, signal.Signals] | None = None,
    more_signals: Sequence[tuple[str, signal.Signals]] = (),
    settle: float = GONE_WITHIN + SLACK,
) -> ScriptResult:
    """Writes `source` (dedented) to a file and runs it.

    Args:
        timeout: seconds until the script counts as hung: it is killed, AssertionError.
        cwd: working directory; by default an empty one that is *not* the script's.
        files: further files next to the script, name to text.
        env: changes to the environment.
        python_args: for the interpreter, before the script.
        name: of the script's file.
        stdin: what the script can read; there is no end of file before the script's own. None: it
            has no stdin at all.
        signal_after: `(text, signal)`: sends the signal to the script's process group, as a
            terminal does for Ctrl-C, once a line with that text is on its stdout.
        more_signals: further ones, in order; those whose text never comes are not sent.
        settle: seconds that the script's other processes have to go away after it.
    """
    tag = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home_of_the_script")
        elsewhere = Path(folder, "working_directory")
        temporary = Path(folder, "temporary")
        for path in (home, elsewhere, temporary):
            path.mkdir()
        script = home / name
        script.write_text(textwrap.dedent(source))
        for file_name, text in (files or {}).items():
            (home / file_name).write_text(textwrap.dedent(text))
        environment = {**os.environ, TAG: tag, "TMPDIR": str(temporary), **(env or {})}
        if "PYTHONPATH" not in (env or {}):
            environment["PYTHONPATH"] = package_path()
        without_stdin = ["/bin/sh", "-c", 'exec "$0" "$@" <&-'] if stdin is None else []
        started = time.monotonic()
        process = subprocess.Popen(
            [*without_stdin, sys.executable, *python_args, str(script)],
            cwd=cwd or elsewhere,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        process.stdin.write(stdin or "")
        process.stdin.flush()
        out: list[str] = []
        err: list[str] = []
        news = threading.Condition()
        readers = [
            threading.Thread(target=_pump, args=(process.stdout, out, news), daemon=True),
            threading.Thread(target=_pump, args=(process.stderr, err, news), daemon=True),
        ]
        for reader in readers:
            reader.start()
        signals = [signal_after, *more_signals] if signal_after is not None else []
        signalled: list[float] = []
        hung = False
        try:
            signalled = _send_signals(process, signals, out, news, started + timeout)
            process.wait(max(0.1, started + timeout - time.monotonic()))
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            ended = time.monotonic()
            if process.poll() is None:
                process.kill()
                process.wait()
        left = wait_tag_gone(tag, settle) + [f"file {path.name}" for path in temporary.iterdir()]
        for reader in readers:
            reader.join(5.0)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
        result = ScriptResult(
            "".join(out),
            "".join(err),
            process.returncode,
            ended - started,
            ended - signalled[0] if signalled else None,
            left,
        )
    assert not hung, f"the script had not ended after {timeout} s\n{result}"
    assert signal_after is None or signalled, f"never printed {signal_after!r}\n{result}"
    return result


def program(*parts: str) -> str:
    """The source of a script that can import the helpers, of parts that are each indented in a way
    of its own.
    """
    return "\n".join([f"import sys\nsys.path.append({TESTS!r})", *map(textwrap.dedent, parts)])


def run_program(*parts: str, timeout: float = LIMIT) -> ScriptResult:
    """Runs a `program`, which must end well and leave nothing."""
    result = run_script(program(*parts), timeout=timeout)
    assert result.exit_code == 0, str(result)
    assert result.left_behind == [], str(result)
    assert "internal error" not in result.stderr, str(result)
    return result


def wait_tag_gone(tag: str, settle: float) -> list[str]:
    """Waits for the end of every process of a script; those that were still there are described,
    and killed.
    """
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
