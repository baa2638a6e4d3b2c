"""A program that is none of the tests' business: `python -m gate.strangers` makes and drops segments,
semaphores, files below ``/tmp/monarch-*`` and processes until its standard input ends.

`python -m tests.trust` runs it beside the tests, whose leak checks must not take these for theirs.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent


@contextmanager
def stranger() -> Iterator[Callable[[], bool]]:
    """The program, as a child of init, so that no process of the tests is its parent.

    Yields a function that waits until it has made things once more; false where it has ended.
    """
    rounds, told = os.pipe()
    stop, held = os.pipe()
    # the program between them ends at once
    code = (
        "import subprocess, sys;"
        f"subprocess.Popen([sys.executable, '-m', 'gate.strangers'], stdin={stop}, stdout={told})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=_TESTS, pass_fds=(stop, told), check=True)
    os.close(stop)
    os.close(told)
    try:
        yield lambda: os.read(rounds, 1) != b""
    finally:
        os.close(held)
        while os.read(rounds, 4096):
            pass  # until it has ended
        os.close(rounds)


def main() -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        memory = SharedMemory(create=True, size=4096)
        semaphore = multiprocessing.get_context("spawn").Semaphore()
        with (
            tempfile.TemporaryDirectory(prefix="monarch-", dir="/tmp") as folder,
            subprocess.Popen(["sleep", "0.2"]),
        ):
            Path(folder, "socket").touch()
            sys.stdout.write(".")
            sys.stdout.flush()
        memory.close()
        memory.unlink()
        del semaphore


if __name__ == "__main__":
    main()
