"""What a host agent knows of each proc, of the mesh it belongs to, and of those that were started together."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque

from ... import config
from ..hub.contracts import Origin
from ..net import unix
from ..supervision.failure import (
    DEAF,
    DEAF_REASON,
    EXITED,
    FROZEN,
    KILLED,
    STOPPED,
    Failure,
    exit_reason,
    frozen_reason,
)
from ..wire.address import ActorAddress, ProcAddress
from ..wire.frame import Frame
from .heartbeat import Pause
from .oom_killer import OutOfMemory
from .output import LineSplitter
from .spawn_request import SpawnRequest

_DEAF = 1.0  # seconds for which a process that runs may not be reached; one that dies is known to be dead long before
_TAIL_LINES = 10  # kept for failure reports, whatever `tail_log_lines` says


class ProcEntry:
    """One proc on this host."""

    def __init__(self, address: ProcAddress, mesh: Mesh, starting: Starting, rank: int, incarnation: int = 0) -> None:
        self.address = address
        self.mesh = mesh
        self.starting = starting
        self.rank = rank
        self.incarnation = incarnation
        self.created = time.monotonic()
        self.previous: Failure | None = None  # how the incarnation before it ended
        self.bound = False  # it listens
        self.pid = 0
        self.pidfd = -1
        self.ready = False
        self.stopping: str | None = None
        self.taken: Failure | None = None  # why it is stopped, where its owner does not want that
        self.killed: str | None = None  # why somebody had it killed
        self.frozen = 0.0  # seconds for which it had stood still when it was killed
        self._unreached = 0.0  # since when nobody has been let in; 0 if the last one was, or nobody has tried
        self._deaf = False  # it was killed for that
        self.pause: Pause | None = None
        self.end: Failure | None = None
        self.tail: deque[str] = deque(maxlen=max(_TAIL_LINES, config.value("tail_log_lines")))
        self.streams: dict[int, tuple[str, LineSplitter]] = {}

    @property
    def serves(self) -> bool:
        """Whether it listens, and is to go on with that."""
        return self.bound and self.end is None and self.stopping is None

    def decided(self, connected: float) -> bool:
        """Whether those who wait to hear what became of it can be told.

        Args:
            connected: When the connection to it that broke was made; 0 for who waits until there is one.
        """
        if connected:
            return self.end is not None
        stopped = self.stopping is not None if self.end is None else self.end.is_stop
        return not (stopped and self.mesh.restarts)

    @property
    def label(self) -> str:
        return f"{self.mesh.name}[{self.rank}]"

    def kill(self) -> None:
        """SIGKILL, unless it has ended: a pidfd cannot hit another process that got its number."""
        if self.pidfd >= 0 and self.end is None:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def check_hearing(self, address: ProcAddress) -> None:
        """Somebody could not reach it, or not any more, although it runs: try, and kill what has not listened for a while.

        A program may have replaced itself (`os.execv`), or have closed all its descriptors.

        Args:
            address: The name under which it listens.
        """
        try:
            unix.connect(address).close()
        except ConnectionRefusedError:
            now = time.monotonic()
            self._unreached = self._unreached or now
            self._deaf = now - self._unreached >= _DEAF
        except OSError:  # too many wait there, or this process has a shortage
            pass
        else:
            self._unreached = 0.0
        if self._deaf:
            self.kill()

    def moves(self) -> None:
        """It does not stand still, or no longer."""
        if self.pause is not None:
            self.pause.end()
            self.pause = None

    def obituary(self, status: int, memory: OutOfMemory) -> Failure:
        """How it ended, for the status that its parent was told."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        failure = Failure(
            KILLED if number is not None else EXITED,
            exit_reason(code, number),
            mesh=self.mesh.name,
            rank=self.rank,
            proc=self.label,
            pid=self.pid,
            host=socket.gethostname(),
            exit_code=code,
            signal=number,
            output=tuple(self.tail),
            incarnation=self.incarnation,
            restarts=self.mesh.restarts,
        )
        if self.stopping is not None:
            stopped = self.stopped()
            return failure._replace(cause=stopped.cause, reason=stopped.reason, proc=stopped.proc, output=())
        if self.frozen and number == signal.SIGKILL:
            return failure._replace(cause=FROZEN, reason=f"the process was {frozen_reason(self.frozen)}")
        if self._deaf and number == signal.SIGKILL:
            return failure._replace(cause=DEAF, reason=f"the process was {DEAF_REASON}")
        if self.killed is not None and number == signal.SIGKILL:
            return failure._replace(reason=f"the process was killed: {self.killed}")
        if number == signal.SIGKILL:
            return failure._replace(reason="\n".join(filter(None, (failure.reason, memory.explain()))))
        return failure

    def stopped(self) -> Failure:
        """What callers are told of a proc that is being stopped."""
        end = self.taken or Failure(STOPPED, self.stopping or "", proc=self.label, pid=self.pid)
        return end._replace(
            mesh=self.mesh.name, rank=self.rank, incarnation=self.incarnation, restarts=self.mesh.restarts,
            known=time.monotonic(),
        )  # fmt: skip


class Mesh:
    """The procs of one proc mesh on this host."""

    def __init__(self, request: SpawnRequest) -> None:
        self.uid = request.mesh
        self.name = request.name
        self.size = request.size
        self.owner: ActorAddress = request.owner
        self.root = request.root
        self.restarts = request.restarts
        self.ends_groups = bool(request.config.get("end_process_groups", True))  # what is the default is not sent along
        self.procs: dict[int, ProcEntry] = {}


class Starting:
    """Procs that were asked for together, and whoever waits until all of them are ready."""

    def __init__(self, origin: Origin, frame: Frame) -> None:
        self.requester: tuple[Origin, Frame] | None = (origin, frame)
        self.entries: list[ProcEntry] = []
