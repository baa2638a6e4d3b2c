"""`python -m benchmarks.demo`, as a program of its own: what faces are tried on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from helpers.admin import Asker
from helpers.leaks import descendants
from helpers.terminals import killed_after
from helpers.waiting import wait_until

_PATIENCE = 150.0  # seconds


class Demo:
    """Attributes:
    url: Where it listens.
    link: Lets a browser in, once.
    token: Lets a program in.
    process: Holds the socket; its child, the helper, serves.
    began: When it was started, in seconds since 1970.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.began = time.time()
        self.process = process
        assert process.stdout is not None
        with killed_after(_PATIENCE, process):
            access: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
        self.url, self.link, self.token = access["url"], access["link"], access["token"]
        self.asker = Asker(self.url, self.token)

    @property
    def helper(self) -> int:
        """The process that serves; a thread starts it, beside the line that says where."""
        return next(iter(wait_until(lambda: descendants(self.process.pid), what="the helper")))

    @property
    def computing(self) -> set[int]:
        """Its children, which compute questions in SQL."""
        return set(descendants(self.helper))


@contextmanager
def demo(ranks: int, fault: str, *arguments: str) -> Iterator[Demo]:
    """One that runs until the block ends.

    Args:
        arguments: Others of the command line: ``--after``, ``20``.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.demo",
        "--json",
        "--ranks",
        str(ranks),
        "--fault",
        fault,
        *arguments,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Demo(process)
    finally:
        process.send_signal(signal.SIGINT)
        with killed_after(_PATIENCE, process):
            process.communicate()
