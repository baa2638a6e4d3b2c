"""Verifiers: run programs that nobody has read, within limits of time and memory.

An actor is no place for such code: it holds handles to all others. Each verifier has a process
beside it, without Monarch, that gets a program and answers by a pipe. What hangs, crashes, or wants
all of the memory ends that process at most, and the next check has another one.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from monarch.actor import Actor, endpoint, get_meter

from .tasks import END, Task

TIME_LIMIT = 1.0  # seconds for all answers of a group
MEMORY_LIMIT = 1 << 29  # bytes

# region sandbox
SANDBOX = """
import json, os, resource, signal, socket, sys
seconds, memory = float(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # of a dump, too
pipe = socket.socket(fileno=0)  # of messages, each of which comes whole
while asked := pipe.recv(1 << 20):
    checker, prompt, answers = json.loads(asked)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal ends this process
    try:
        program = {}
        exec(checker, program)
        found = ["01"[program["check"](prompt, answer) is True] for answer in answers]
    except Exception:
        found = ["0"] * len(answers)
    signal.setitimer(signal.ITIMER_REAL, 0)
    pipe.send("".join(found).encode())
"""


class Sandbox:
    """A process for checks."""

    process: subprocess.Popen[bytes] | None = None
    pipe: socket.socket

    def check(self, task: Task, answers: list[str]) -> list[float] | None:
        """What the task's program says of each answer; None if it said nothing in time."""
        if self.process is None:
            self.pipe, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
            # longer than the sandbox gives the program, which may have turned that off
            self.pipe.settimeout(10 * TIME_LIMIT)
            limits = str(TIME_LIMIT), str(MEMORY_LIMIT)
            program = [sys.executable, "-I", "-S", "-c", SANDBOX, *limits]
            null = subprocess.DEVNULL
            with its:
                self.process = subprocess.Popen(
                    program, stdin=its.fileno(), stdout=null, stderr=null, start_new_session=True
                )
        said = b""
        with suppress(OSError):  # it has ended, or says nothing
            self.pipe.sendall(json.dumps([task.checker, task.prompt.decode(), answers]).encode())
            said = self.pipe.recv(1 << 12)
        if len(said) == len(answers):
            return [float(byte == ord("1")) for byte in said]
        self.end()
        return None

    def end(self) -> None:
        if self.process is not None:
            self.pipe.close()
            os.killpg(self.process.pid, signal.SIGKILL)  # with what it has started
            self.process.wait()
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
        self.ended.add(int(found is None))
        found = found or [0.0] * len(answers)
        return [each * text.endswith(END) for each, text in zip(found, answers, strict=True)]

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    def __cleanup__(self, error: Exception | None) -> None:
        self.sandbox.end()
