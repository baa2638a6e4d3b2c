"""One proc of a host, from the request for it to its end: events in, instructions out.

No I/O, no clock.

`TABLE` says what follows when. `host_procs` tells an entry what happens to its process, and carries
out what it says.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

from ... import config
from ..._namedtuple import NamedTuple
from ..hub.control_records import HostedProc
from ..hub.spawn_requests import SpawnRequest, Start
from ..shape import Extent, Point
from ..supervision.failure import (
    DEAF,
    DEAF_REASON,
    KILLED,
    STOPPED,
    UNSTARTED,
    Failure,
    exit_reason,
)
from ..supervision.failure import EXITED as EXITED_ITSELF
from ..wire.address import ActorAddress, ProcAddress

ASKED, BOUND, STARTING, UP, CANCELLED, HALTING, STOPPING, EXITED, HALTED, ENDED = (
    "asked", "bound", "starting", "up", "cancelled", "halting", "stopping", "exited", "halted", "ended"
)  # fmt: skip
"""A proc is `ASKED` for, then the spawner listens for it (`BOUND`), then there is a process
(`STARTING`), which says that it is `UP`. One that ends before it says so has `EXITED`: what it
wrote last may say it yet. A stop makes the first two `CANCELLED`, and the others `HALTING`,
`STOPPING`, `HALTED`.
"""

_BURY = ("release", "announce", "settle")

# state, event -> next state, instructions in their order. Pairs not in it cannot occur.
#
# bound: the spawner listens for it              settle: tell those who ask what became of it, if that is known now
# forked: it has a process                       report: it is up; tell who asked for it, if it was the last
# ready: it says that it is up                   refuse: tell who asked for it that it did not start
# failed: it could not be started                ask_to_end: ask the process to end
# stop: it is asked to end                       hurry: "overdue" follows soon
# overdue: it should be up, or have ended        kill: end the process, if there is one
# given_up: it has had its time to end           linger: read what it wrote last; "silent" follows
# kill: it must end, now or once it is forked    release: let go of its socket
# exited: the process has ended                  announce: tell other hosts
# silent: it had nothing to say                  tell_owner: tell the owner of its mesh
# abandoned: it will not be started again        clear: end what it leaves behind, then tell those who wait for its end
#                                                end_waits: tell those who wait for its end
#
# A process may say that it is up before the spawner says that there is one, so the pid of one that
# is `UP` may come later. Its client may have used it, and stop it, before that: so who is to end is
# asked to, once it is up.
TABLE: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    (ASKED, "bound"): (BOUND, ("settle",)),
    (ASKED, "ready"): (UP, ("settle", "report")),
    (ASKED, "failed"): (ENDED, ("refuse", *_BURY, "clear")),
    (ASKED, "stop"): (CANCELLED, ()),
    (ASKED, "kill"): (ASKED, ()),
    (BOUND, "forked"): (STARTING, ()),
    (BOUND, "ready"): (UP, ("report",)),
    (BOUND, "failed"): (ENDED, ("refuse", *_BURY, "clear")),
    (BOUND, "stop"): (CANCELLED, ()),
    (BOUND, "kill"): (BOUND, ()),
    (STARTING, "ready"): (UP, ("report",)),
    (STARTING, "stop"): (HALTING, ("hurry",)),
    (STARTING, "kill"): (STARTING, ("kill",)),
    (STARTING, "exited"): (EXITED, ("linger",)),
    (UP, "bound"): (UP, ()),
    (UP, "forked"): (UP, ()),
    (UP, "failed"): (ENDED, (*_BURY, "tell_owner", "clear")),
    (UP, "stop"): (STOPPING, ("ask_to_end",)),
    (UP, "kill"): (UP, ("kill",)),
    (UP, "exited"): (ENDED, (*_BURY, "tell_owner", "clear")),
    (CANCELLED, "bound"): (CANCELLED, ()),
    (CANCELLED, "forked"): (HALTING, ("hurry",)),
    (CANCELLED, "ready"): (STOPPING, ("settle", "report", "ask_to_end")),
    (CANCELLED, "failed"): (ENDED, ("refuse", *_BURY, "clear")),
    (CANCELLED, "stop"): (CANCELLED, ()),
    (CANCELLED, "kill"): (CANCELLED, ()),
    (CANCELLED, "given_up"): (CANCELLED, ("end_waits",)),  # the spawner is stuck; see "forked"
    (HALTING, "ready"): (STOPPING, ("report", "ask_to_end")),
    (HALTING, "stop"): (HALTING, ()),
    (HALTING, "overdue"): (HALTING, ("kill",)),
    (HALTING, "given_up"): (HALTING, ("kill",)),
    (HALTING, "kill"): (HALTING, ("kill",)),
    (HALTING, "exited"): (HALTED, ("linger",)),
    (STOPPING, "bound"): (STOPPING, ()),
    (STOPPING, "forked"): (STOPPING, ()),
    (STOPPING, "failed"): (ENDED, (*_BURY, "clear")),
    (STOPPING, "stop"): (STOPPING, ()),
    (STOPPING, "overdue"): (STOPPING, ()),
    (STOPPING, "given_up"): (STOPPING, ("kill",)),
    (STOPPING, "kill"): (STOPPING, ("kill",)),
    (STOPPING, "exited"): (ENDED, (*_BURY, "clear")),
    (EXITED, "ready"): (ENDED, ("report", *_BURY, "tell_owner", "clear")),
    (EXITED, "silent"): (ENDED, ("refuse", *_BURY, "tell_owner", "clear")),
    (EXITED, "stop"): (HALTED, ()),
    (EXITED, "kill"): (EXITED, ()),
    (HALTED, "ready"): (ENDED, ("report", *_BURY, "clear")),
    (HALTED, "silent"): (ENDED, ("refuse", *_BURY, "clear")),
    (HALTED, "stop"): (HALTED, ()),
    (HALTED, "overdue"): (HALTED, ()),
    (HALTED, "given_up"): (HALTED, ()),
    (HALTED, "kill"): (HALTED, ()),
    (ENDED, "ready"): (ENDED, ()),
    (ENDED, "silent"): (ENDED, ()),
    (ENDED, "overdue"): (ENDED, ()),
    (ENDED, "abandoned"): (ENDED, ("settle",)),
}

_LISTENING = (BOUND, STARTING, UP)
_UNWANTED = (CANCELLED, HALTING, STOPPING, HALTED)
# seconds for which a process that runs may not be reached; one that dies is known to be dead long
# before
_DEAF = 1.0
_TAIL_LINES = 10  # kept for failure reports, also where `tail_log_lines` is less


class Wanted(NamedTuple):
    """A client's request for one rank.

    Attributes:
        view: See `ShowOutput`.
        level: See there.
    """

    view: Callable[[str, Any], Any]
    level: int


class SpawnedMesh:
    """The procs of one proc mesh on one host.

    Args:
        request: The request for it.
        machine: Name of the machine, for people.
    """

    def __init__(self, request: SpawnRequest, machine: str) -> None:
        self.uid = request.mesh
        self.name = request.name
        self.extent = Extent(request.sizes, request.sizes.values())
        self.size = self.extent.nelements
        self.owner: ActorAddress = request.owner
        self.root = request.root
        self.restarts = request.restarts
        self.ends_groups = request.ends_groups
        self.machine = machine
        self.over = False  # whether all of it was stopped, for good
        self.procs: dict[int, ProcEntry] = {}
        self.wanted: dict[int, Wanted] = {}
        """What clients have asked for, by rank; it outlives the processes."""

    def as_wanted(self, start: Start) -> Start:
        """Return how a proc starts again, with requests made since its first start."""
        wanted = self.wanted.get(start.rank)
        return start if wanted is None else start._replace(log_level=wanted.level)


class ProcEntry:
    """The state of a proc, see the module. Each event returns the instructions that follow.

    Args:
        address: Its name.
        mesh: Which it belongs to.
        rank: Its rank there.
        incarnation: See below.
        now: The time.
        previous: How the incarnation before it ended.

    Attributes:
        incarnation: How often it has been started before.
        pid: Its process, 0 before it is known.
        greeting: That it is up, as it has said; the way to ask it to end.
        end: How it ended, None before.
        tail: The last lines that it printed.
    """

    def __init__(
        self,
        address: ProcAddress,
        mesh: SpawnedMesh,
        rank: int,
        incarnation: int,
        now: float,
        previous: Failure | None = None,
    ) -> None:
        self.address = address
        self.mesh = mesh
        self.rank = rank
        self.state = ASKED
        self.pid = 0
        self.greeting: Any = None
        self.end: Failure | None = None
        self.tail: deque[str] = deque(maxlen=max(_TAIL_LINES, config.value("tail_log_lines")))
        self.incarnation = incarnation
        self._created = now
        self._previous = previous
        # since when connections are refused; 0 if the last one was accepted, or none was tried
        self._unreached = 0.0
        self._stop: Failure | None = None  # why it is asked to end, as callers are told
        self._kill_reason: tuple[str, str] | None = None  # cause and reason for which it is killed
        self._condemned = False  # whether it is to be killed, if need be once there is a process
        self._death: Failure | None = None  # the known cause of its end, before that is final

    def __repr__(self) -> str:
        return f"<proc {self.label}: {self.state}, pid {self.pid}>"

    @property
    def label(self) -> str:
        return f"{self.mesh.name}[{self.rank}]"

    def describe(self) -> HostedProc:
        mesh = self.mesh
        point = dict(Point(self.rank, mesh.extent))
        return HostedProc(
            self.address, self.pid, mesh.name, self.rank, mesh.size, point, mesh.uid, self.state,
            mesh.root, self.end,
        )  # fmt: skip

    @property
    def listens(self) -> bool:
        """True if the proc takes connections, and should keep doing so."""
        return self.state in _LISTENING

    def outcome(
        self, connected: float, now: float, waited: bool = False
    ) -> tuple[bool, Failure | None]:
        """Return whether the fate of the proc is known, and its failure: None if it listens.

        Args:
            connected: When the connection to it that broke was made; 0 for callers that wait until
                there is one.
            waited: Whether who asks has done so before.
        """
        # it was one to the incarnation before
        if self._previous is not None and 0 < connected < self._created:
            return True, self._previous
        if self.end is not None:
            returns = self.end.restarts and not connected and (self.end.is_stop or not waited)
            return not returns, self.end
        if self.state in _UNWANTED and (connected or not self.mesh.restarts):
            return True, self.stopped(now)  # it closes its connections first, then it ends
        return self.listens and not connected, None

    def stopped(self, now: float) -> Failure:
        """Return the failure that callers of a proc get while it is being stopped."""
        assert self._stop is not None
        return self._about(self._stop)._replace(known=now)

    def why_unstarted(self) -> str:
        """Return the error text for the requester of the proc."""
        assert self.end is not None
        if not self.pid:
            return f"error creating proc {self.label}: {self.end.reason}"
        return (
            f"error creating proc (host rank 0) {self.label}: exit_code: {self.end.exit_code},"
            f" {self.end.explain()}"
        )

    # events

    def happen(self, event: str, now: float) -> tuple[str, ...]:
        """An event that says all by its name."""
        self.state, instructions = TABLE[self.state, event]
        self._condemned |= event in ("kill", "given_up")
        if event == "abandoned" and self.end is not None:
            self.end = self.end._replace(restarts=False)
        elif self.state == ENDED and self.end is None:
            self.end = self._obituary(event)._replace(known=now)
        return instructions

    def forked(self, pid: int, now: float) -> tuple[str, ...]:
        self.pid = pid
        instructions = self.happen("forked", now)
        return ("kill",) if self._condemned else instructions

    def stop(self, reason: str, now: float) -> tuple[str, ...]:
        if self._stop is None:
            self._stop = Failure(STOPPED, reason, proc=self.label, pid=self.pid)
        return self.happen("stop", now)

    def take(self, failure: Failure) -> None:
        """Note that its host stops it without its owner's wish: a failure then, and no stop."""
        self._stop = failure

    def kill(self, cause: str, reason: str, now: float) -> tuple[str, ...]:
        """Kill the proc.

        Args:
            cause: A constant of `supervision.failure`, which is that of its end.
            reason: Why, in words.
        """
        self._kill_reason = self._kill_reason or (cause, reason)
        return self.happen("kill", now)

    def reached(self) -> None:
        """The proc has let a caller in."""
        self._unreached = 0.0

    def unreached(self, now: float) -> tuple[str, ...]:
        """It accepts no connection, though it runs: the program may have replaced itself
        (`os.execv`), or closed all its descriptors.
        """
        self._unreached = self._unreached or now
        if now - self._unreached < _DEAF:
            return ()
        return self.kill(DEAF, f"the process was {DEAF_REASON}", now)

    def failed(self, error: str, now: float) -> tuple[str, ...]:
        self._death = Failure(
            UNSTARTED, f"it could not be started: {error}", proc=self.label, host=self.mesh.machine
        )
        return self.happen("failed", now)

    def exited(self, status: int, suspicion: str, now: float) -> tuple[str, ...]:
        """Take in its exit status.

        Args:
            status: As `os.waitpid` gives it.
            suspicion: Another possible cause of a SIGKILL that was not sent from here.
        """
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        cause, reason = KILLED if number is not None else EXITED_ITSELF, exit_reason(code, number)
        if number == signal.SIGKILL:
            cause, reason = self._kill_reason or (
                cause,
                "; ".join(filter(None, (reason, suspicion))),  # one line: faces show the first
            )
        self._death = Failure(
            cause, reason, proc=self.label, pid=self.pid, host=self.mesh.machine, exit_code=code, signal=number,
            output=tuple(self.tail),
        )  # fmt: skip
        return self.happen("exited", now)

    def unexplained_kill(self, status: int) -> bool:
        """Return whether the proc ended by a SIGKILL that this host has not sent."""
        wanted = self._kill_reason is None and self._stop is None
        return wanted and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    # pieces

    def _obituary(self, last: str) -> Failure:
        death = self._death
        assert death is not None
        if last == "failed":
            return self._about(death)
        if self._stop is not None:
            told = self._stop
            death = death._replace(cause=told.cause, reason=told.reason, proc=told.proc, output=())
        if last == "silent" and not death.is_stop and self._kill_reason is None:
            # which is no news to its owner, unlike a kill from outside
            death = death._replace(cause=UNSTARTED)
        return self._about(death)

    def _about(self, failure: Failure) -> Failure:
        mesh = self.mesh
        return failure._replace(
            mesh=mesh.name, rank=self.rank, incarnation=self.incarnation, restarts=mesh.restarts
        )
