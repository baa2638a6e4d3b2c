"""Verifiers: processes that run programs which nobody has read, within limits.

A check that hangs, crashes or wants all of the memory takes its process along at most. The service
starts another one in its place.
"""

import os
import resource
import signal

from monarch.actor import Actor, endpoint
from monarch.service import Service

from .tasks import END, Task

TIME_LIMIT = 1.0  # seconds for all answers of a group
MEMORY_LIMIT = 1 << 29  # bytes beyond what the process has when it starts


class Verifier(Actor):
    def __init__(self) -> None:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_LIMIT
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.delay = 0.0

    @endpoint
    def check(self, task: Task, answers: list[bytes]) -> list[float]:
        """1 for each right answer, 0 for others."""
        # SIGALRM ends the process, whatever the code does with exceptions
        signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT + self.delay)
        try:
            return [self._check(task, answer) for answer in answers]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _check(self, task: Task, answer: bytes) -> float:
        if not answer.endswith(END):
            return 0.0
        program: dict[str, object] = {}
        try:
            exec(task.checker, program)
            check = program["check"]
            assert callable(check)
            return float(check(task.prompt.decode(), answer.removesuffix(END).decode()) is True)
        except Exception:
            return 0.0

    @endpoint
    def pid(self) -> int:
        return os.getpid()


Verifiers = Service[Verifier]
