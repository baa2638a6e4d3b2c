"""Starting worker processes on this machine, and waiting until each serves.

A worker leads a session of its own, writes to a file, and holds one end of a socket pair,
its *leash*. Over that it says when it serves; the wait for this ends with the word, with the
worker's end, which closes the leash, or with the time limit. Until this side lets go of the leash
the worker ends with this program, however that ends: so a program that dies between starting
workers and saving them leaves none behind.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..._ours import APPEND, opened, tail
from ..._patterns.attaching import socket_path
from ...errors import JobError
from . import processes
from .contract import worker_command
from .worker_spec import KEEP, WorkerSpec

_LEASH = 3  # the descriptor of a worker
_TAIL_LINES = 20
MOST_REPORT = 64 * 1024
"""Bytes of what a worker says once it serves."""

_TAIL_BYTES = 8192
_LOG_FLAGS = APPEND | os.O_NOFOLLOW
_ABOVE_STANDARD = 10  # descriptors from here on are none that a child is given by number


class WorkerProcess(NamedTuple):
    """A worker process.

    Attributes:
        name: For people: the mesh and the number within it.
        address: Where it serves.
        pid: Its process number, and that of its session.
        log: The file with its output.
    """

    name: str
    address: str
    pid: int
    log: Path

    @property
    def goodbye(self) -> Path:
        """The file that says that its end is in order.

        It goes with its folder when the job has been ended.
        """
        return goodbye_of(self.address)

    @property
    def ended_in_order(self) -> bool:
        """Check whether a worker that is gone was ended on purpose.

        It was shut down, or ended with its job, by any program.
        """
        return self.goodbye.exists() or not self.goodbye.parent.exists()

    def tail(self) -> str:
        """Return the last output of the worker, and the path of its log."""
        try:
            return last_output(self.log) or f"it printed nothing (to {self.log})"
        except OSError as error:
            return f"its output can't be read: {error}"


def last_output(log: Path) -> str:
    """Return the last lines of a log, for people; empty if it has none."""
    lines = tail(log, _TAIL_BYTES).splitlines()[-_TAIL_LINES:]
    if not any(line.strip() for line in lines):
        return ""
    return f"its last output, from {log}:\n" + "\n".join(f"  | {line}" for line in lines)


def goodbye_of(address: str) -> Path:
    """Return the file that exists once the worker at `address` has ended in order."""
    return Path(f"{socket_path(address)}.ended")


def start(
    mesh: str, rank: int, address: str, log: Path, env: Mapping[str, str]
) -> tuple[WorkerProcess, socket.socket]:
    """Start one worker; returns at once, with the leash."""
    spec = WorkerSpec(
        mesh, str(rank), address, report=_LEASH, lifeline=_LEASH, farewell=str(goodbye_of(address))
    )
    ours, theirs = socket.socketpair()
    with theirs:
        # not the number that the child gets: a descriptor that is put in its own place would still
        # close on exec
        inherited = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STANDARD)
    try:
        with opened(log.parent) as folder:
            pid = os.posix_spawn(
                sys.executable,
                worker_command(spec, [sys.executable, *_flags()]),
                env,
                file_actions=[
                    # first: the folder may have the number 0
                    (os.POSIX_SPAWN_OPEN, 1, f"{folder.way}/{log.name}", _LOG_FLAGS, 0o600),
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, inherited, _LEASH),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ],
            )
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(inherited)
    return WorkerProcess(f"{mesh}_{rank}", address, pid, log), ours


def start_child(
    spec: WorkerSpec, env: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a worker with the output of this process; returns at once, with the leash."""
    ours, theirs = socket.socketpair()
    with theirs:
        fd = theirs.fileno()
        command = worker_command(spec._replace(report=fd, lifeline=fd))
        none = subprocess.DEVNULL
        worker = subprocess.Popen(
            command, stdin=none, env=env, pass_fds=[fd], start_new_session=True
        )
    return worker, ours


def wait_ready(
    workers: Sequence[WorkerProcess], leashes: Sequence[socket.socket], timeout: float | None
) -> None:
    """Wait until every worker serves.

    Args:
        workers: The workers.
        leashes: Theirs, in the same order.
        timeout: Seconds for all of them; None for no limit.

    Raises:
        JobError: One has ended instead, with its last output; or the time is over.
    """
    waiting = {
        leash.fileno(): (worker, leash) for worker, leash in zip(workers, leashes, strict=True)
    }
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    end = None if timeout is None else time.monotonic() + timeout
    while waiting:
        rest = None if end is None else max(0.0, end - time.monotonic()) * 1000
        ready = poll.poll(rest)
        if not ready:
            worker, _ = next(iter(waiting.values()))
            raise JobError(
                f"{len(waiting)} of {len(workers)} workers did not serve within {timeout:g} s"
                f" (host_spawn_ready_timeout), among them {worker.name}, process {worker.pid}:"
                f" {worker.tail()}"
            )
        for fd, _ in ready:
            worker, leash = waiting.pop(fd)
            poll.unregister(fd)
            if not leash.recv(MOST_REPORT):
                # which closes its leash in the last moments of its life
                how = describe_status(processes.reap(worker.pid, 1.0))
                raise JobError(f"worker {worker.name} ended before it served{how}; {worker.tail()}")


def let_go(leashes: Sequence[socket.socket]) -> None:
    """Release the leashes: from now on the workers may outlive this program."""
    for leash in leashes:
        # it has ended, as a client will see
        with suppress(BrokenPipeError, ConnectionResetError):
            leash.send(KEEP)
        leash.close()


def _flags() -> list[str]:
    # as multiprocessing does
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def describe_status(status: int | None) -> str:
    """Describe in words how a process ended, as far as is known."""
    if status is None:
        return ""
    if status < 0:
        return f", killed by signal {-status} ({signal.strsignal(-status)})"
    return f" with exit status {status}"
