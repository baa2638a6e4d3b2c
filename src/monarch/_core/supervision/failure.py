"""The record of a failure, and its public face, `MeshFailure`."""

from __future__ import annotations

import signal as _signal
from collections.abc import Callable
from typing import Any

from ..._lazy import shown_by
from ..._namedtuple import NamedTuple
from ..._words import host_named

EXCEPTION = "exception"  # user code raised where no caller could catch it
ABORTED = "aborted"  # the actor ended itself with kill() or abort()
KILLED = "killed"  # a signal ended the process
EXITED = "exited"  # the process ended itself
FROZEN = "frozen"  # a signal had stopped the process, nothing continued it, so it was ended
DEAF = "deaf"  # the process ran and no longer listened, so it was ended
HOST = "host"  # the host agent is gone
LINK = "link"  # the connection broke although the process runs
STOPPED = "stopped"  # not a failure: its stop was asked for
MISSING = "missing"  # nothing of that name was ever there
UNSTARTED = "unstarted"  # the process never came up; the caller of the spawn has the error
UNHANDLED = "unhandled"  # something it owns failed, and it did not handle that


INJECTED = "a fault that was injected"
"""In the reason, or the last output, of a failure that a test has asked for."""

_REMEMBERED = 16 * 1024
"""Characters of a text, and bytes of an exception, that are remembered of a failure."""


class Failure(NamedTuple):
    """One thing that ended, and why. Immutable, picklable with builtins alone.

    Attributes:
        cause: One of the constants of this module.
        reason: One or more lines that say what happened.
        actor: Path of the actor, ``<root>.<Trainer trainers{'gpus': 0/8}>``; empty where a process
            is meant.
        mesh: Name of the mesh, as the user gave it.
        mesh_uid: Its id.
        rank: Linear rank in the mesh as it was spawned; None where the whole mesh is meant.
        proc: The process: mesh name and rank.
        pid: Its process id, 0 if unknown.
        host: Its name for people: ``trainers[0] on node7`` of a job, else the machine's.
        exit_code: Exit status of the process, if it exited.
        signal: Number of the signal that ended it, if one did.
        output: The last lines the process printed.
        source: The failure that led to this one, if another did.
        error: The exception that ended the actor, as bytes that are unpickled when it is read;
            empty if none did.
        incarnation: How often the actor, or the process, had been started again before.
        restarts: Whether it may be started again; those who call it then wait for that instead of
            being told of this.
        known: When the agent of its host learned of the end of this process (`time.monotonic`); 0
            where none did. Later connections are to the next incarnation.
    """

    cause: str
    reason: str
    actor: str = ""
    mesh: str = ""
    mesh_uid: int | str = 0
    rank: int | None = None
    proc: str = ""
    pid: int = 0
    host: str = ""
    exit_code: int | None = None
    signal: int | None = None
    output: tuple[str, ...] = ()
    source: Failure | None = None
    error: bytes = b""
    incarnation: int = 0
    restarts: bool = False
    known: float = 0.0

    def of(self, actor: str, mesh: str, mesh_uid: int | str, rank: int) -> Failure:
        """Return this failure of a process as the failure of one actor on it."""
        reason = self.reason
        if not self.is_stop:
            reason = f"the process this actor was running on failed: {reason}"
        return self._replace(actor=actor, mesh=mesh, mesh_uid=mesh_uid, rank=rank, reason=reason)

    def brief(self) -> Failure:
        """Return a short form to remember: long texts cut, a large exception left out."""
        source = self.source and self.source.brief()
        reason, output = _cut(self.reason), tuple(map(_cut, self.output))
        error = self.error if len(self.error) <= _REMEMBERED else b""
        return self._replace(reason=reason, output=output, error=error, source=source)

    @property
    def is_stop(self) -> bool:
        return self.cause == STOPPED

    def explain(self) -> str:
        """Return the text that callers get: who has ended, then why."""
        who = self.actor or host_named(self.proc) or self.mesh or "the actor"
        if self.is_stop:
            return f"{who} has status: stopped: {self.reason}"
        head = f"The actor {who} and all its descendants have" if self.actor else f"{who} has"
        reason = ["  " + line for line in self.reason.splitlines()]
        return "\n".join([f"{head} failed:", *reason, *self._where()])

    def _where(self) -> list[str]:
        what = "host" if "://" in self.proc else "proc"  # a host is named by its address
        proc = self.proc and f"{what} {host_named(self.proc)}"
        known = proc, self.pid and f"pid {self.pid}", self.host
        lines = ["  on " + ", ".join(str(part) for part in known if part)] if any(known) else []
        last = [f"    | {line}" for line in self.output]
        return [*lines, "  last output:", *last] if last else lines


def _cut(text: str) -> str:
    """The beginning and the end of a long text."""
    left_out = len(text) - _REMEMBERED
    if left_out <= 0:
        return text
    half = _REMEMBERED // 2
    return f"{text[:half]}\n... ({left_out} characters are not remembered) ...\n{text[-half:]}"


def exit_reason(exit_code: int | None, signal: int | None) -> str:
    """Say in words how a process ended."""
    if signal is not None:
        try:
            name = _signal.Signals(signal).name
        except ValueError:
            name = f"signal {signal}"
        return f"Killed(sig={signal}): the process was ended by {name}"
    return f"the process exited with {'' if exit_code == 0 else 'non-zero '}code {exit_code}"


def _no_loader(error: bytes) -> BaseException | None:
    return None


load_exception: Callable[[bytes], BaseException | None] = _no_loader
"""Rebuilds `Failure.error`; set by the runtime, as unpickling is no business of this layer."""


HOST_LOST = "the host agent is gone, and every process of that host with it"


WORKER_ENDED = "which started this host's agent, is gone"
"""In the reason for which the host of a worker is gone that was ended, by a signal say."""

NOT_ATTACHED = "the host could not be attached"


def not_attached(failure: Failure) -> Failure:
    """The loss of a host that never answered: nothing ran there, its caller has the error."""
    return failure._replace(cause=UNSTARTED, reason=failure.reason.replace(HOST_LOST, NOT_ATTACHED))


NOT_LET_IN = (
    "this process has not attached the host (attach_to_workers does, by the secret or the"
    " certificates of its owner)"
)


def not_let_in(failure: Failure) -> Failure:
    """The loss of a host that this process has not attached: it may be there for all others."""
    return failure._replace(reason=failure.reason.replace(HOST_LOST, NOT_LET_IN))


def host_lost(agent: str, why: str = "", pid: int = 0) -> Failure:
    """The end of a host agent, which is the end of all that it started."""
    return Failure(HOST, f"{HOST_LOST}: {why}" if why else HOST_LOST, proc=agent, pid=pid)


def client_lost(client: str) -> Failure:
    """The end of a client, which is the end of all that it started."""
    return Failure(
        HOST, "the client is gone, and every process that it started with it", proc=client
    )


def frozen_reason(seconds: float) -> str:
    """Say how a frozen process ended, in words that follow its name and "was"."""
    return (
        f"stopped by a signal, and ended as nothing continued it within {seconds:g}s"
        " (heartbeat_timeout)"
    )


DEAF_REASON = (
    "ended because it ran on and did not listen any more: it has replaced itself by another program"
    " (os.exec...), or closed descriptors that are not its own (os.closerange)"
)
"""In words that follow its name and "was"."""


class MeshFailure:
    """A failure of a mesh that an actor owns, as `__supervise__` and the fault hook get it.

    Attributes:
        mesh_name: The name the mesh was spawned with; ``"<none>"`` for the client's own failures.
        mesh: The mesh itself, as its owner spawned it; None where the owner has let go of it.
        ranks: Linear ranks that failed, in the mesh as it was spawned.
        cause: ``"exception"``, ``"killed"``, ``"exited"``, ``"aborted"``, ``"host"``,
            ``"unhandled"``, ...
        event: The whole record, a named tuple: `exit_code`, `signal`, `pid`, `host`, `output`,
            `source`, ...
    """

    __slots__ = ("event", "mesh")
    _repr_html_ = shown_by("failure")

    def __init__(self, event: Failure, mesh: Any = None) -> None:
        self.event = event
        self.mesh = mesh

    @property
    def mesh_name(self) -> str:
        return self.event.mesh or "<none>"

    @property
    def ranks(self) -> list[int]:
        return [] if self.event.rank is None else [self.event.rank]

    crashed_ranks = ranks

    @property
    def cause(self) -> str:
        return self.event.cause

    @property
    def exception(self) -> BaseException | None:
        """The exception that ended the actor, or what it owned, rebuilt here; None if none did."""
        event = self.event
        while not event.error and event.source is not None:
            event = event.source
        return load_exception(event.error) if event.error else None

    @property
    def is_injected(self) -> bool:
        """True if it, or what led to it, was asked for by a test."""
        return INJECTED in repr(self.event)  # with its reason, last output, and source

    @property
    def exit_code(self) -> int | None:
        return self.event.exit_code

    @property
    def signal(self) -> int | None:
        return self.event.signal

    @property
    def last_output(self) -> tuple[str, ...]:
        return self.event.output

    def report(self) -> str:
        """Return several lines for people: who failed, why, where, and its last output."""
        return self.event.explain()

    def __repr__(self) -> str:
        return (
            f"MeshFailure(mesh_name={self.mesh_name!r}, crashed_ranks={self.ranks},"
            f" event={self.event.explain()})"
        )

    def __reduce__(self) -> tuple[type, tuple[Failure, Any]]:
        return MeshFailure, (self.event, self.mesh)
