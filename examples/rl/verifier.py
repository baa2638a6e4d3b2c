"""Verifiers: run programs that nobody has read, within limits of time and memory.

An actor is no place for such code: it holds handles to all others. Each verifier has a process
beside it, without Monarch, that gets a program and answers by a pipe. What hangs, crashes, or wants
all of the memory ends that process at most, and the next check has another one.
"""

import json
import os
import select
import subprocess
import sys

from monarch.actor import Actor, endpoint, get_meter
from monarch.service import Service

from .tasks import END, Task

TIME_LIMIT = 1.0  # seconds for all answers of a group
MEMORY_LIMIT = 1 << 29  # bytes

# region sandbox
SANDBOX = """
import json, os, resource, signal, sys
seconds, memory = float(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
said = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what checks print is no answer
for line in sys.stdin:
    checker, prompt, answers = json.loads(line)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal ends this process
    try:
        program = {}
        exec(checker, program)
        found = [float(program["check"](prompt, answer) is True) for answer in answers]
    except Exception:
        found = [0.0] * len(answers)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(found), file=said, flush=True)
"""


class Sandbox:
    """A process for checks."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def check(self, task: Task, answers: list[str]) -> list[float] | None:
        """What the task's program says of each answer; None if it said nothing in time."""
        if self.process is None:
            limits = (str(TIME_LIMIT), str(MEMORY_LIMIT))
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", SANDBOX, *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = json.dumps([task.checker, task.prompt.decode(), answers])
        try:
            self.process.stdin.write(asked.encode() + b"\n")
            self.process.stdin.flush()
            # Longer than the sandbox gives the program, which may have turned that off.
            is_there, _, _ = select.select([self.process.stdout], [], [], 5 * TIME_LIMIT)
            found: list[float] = json.loads(self.process.stdout.readline()) if is_there else []
        except (OSError, ValueError):  # it has ended
            found = []
        if len(found) == len(answers):
            return found
        self.end()
        return None

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


# endregion


class Verifier(Actor):
    def __init__(self) -> None:
        self.sandbox = Sandbox()
        self.ended = get_meter().create_counter("rl.sandboxes_ended")

    @endpoint
    def check(self, task: Task, answers: list[bytes]) -> list[float]:
        """1 for each right answer, 0 for others."""
        texts = [answer.removesuffix(END).decode("ascii") for answer in answers]
        found = self.sandbox.check(task, texts)
        if found is None:
            self.ended.add(1)
            return [0.0] * len(answers)
        complete = (answer.endswith(END) for answer in answers)
        return [reward * is_whole for reward, is_whole in zip(found, complete, strict=True)]

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    def __cleanup__(self, error: Exception | None) -> None:
        self.sandbox.end()


Verifiers = Service[Verifier]
