"""What procs printed is written before the program ends, however slowly its output is read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

LINES = 15_000
PAUSE = (
    # seconds between reads of one pipe's worth: longer in total than a program waits for anything
    # else at its end
    0.12
)

SCRIPT = f"""
import sys
from monarch.actor import Actor, endpoint, this_host

class Prints(Actor):
    @endpoint
    def print_lines(self, stream):
        for number in range({LINES}):
            print(f"{{number:06}}", "x" * 100, file=getattr(sys, stream))

prints = this_host().spawn_procs().spawn("prints", Prints)
prints.print_lines.call_one(sys.argv[1]).get()
"""


def run_with_a_slow_reader(tmp_path: Path, stream: str) -> tuple[int, bytes]:
    """Exit code, and what was read from that stream."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    other = tmp_path / "the_other_stream"
    with open(other, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(script), stream],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stream == "stdout" else file,
            stderr=subprocess.PIPE if stream == "stderr" else file,
            start_new_session=True,
        )
    watchdog = threading.Timer(45, process.kill)
    watchdog.start()
    try:
        pipe = process.stdout if stream == "stdout" else process.stderr
        assert pipe is not None
        text = b""
        with pipe:
            while data := os.read(pipe.fileno(), 65536):
                text += data
                time.sleep(PAUSE)  # this is the slow reader, not a wait for anything
        code = process.wait(20)
    finally:
        watchdog.cancel()
        watchdog.join()
        if process.poll() is None:
            process.kill()
            process.wait()
    assert other.read_bytes() == b"", other.read_text()
    return code, text


def check(tmp_path: Path, stream: str) -> None:
    code, text = run_with_a_slow_reader(tmp_path, stream)
    assert code == 0, text[-500:]
    numbers = [int(line.split()[0]) for line in text.decode().splitlines()]
    assert len(numbers) == LINES
    assert numbers == list(range(LINES))


def test_nothing_of_stdout_is_lost_in_a_pipe_that_is_read_slowly(tmp_path: Path) -> None:
    check(tmp_path, "stdout")


def test_nothing_of_stderr_is_lost_in_a_pipe_that_is_read_slowly(tmp_path: Path) -> None:
    check(tmp_path, "stderr")
