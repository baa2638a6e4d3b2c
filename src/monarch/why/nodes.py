"""The activity of each rank, from two looks at it. Pure.

A *node* is a call that an actor handles, the main thread of the program, or a process that can't be
looked into. It *stands* if it was at the same place in both looks, in the same call; and it has not
run at all if its thread has used no CPU time in between, which is what tells a hang from a loop.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..stacks.grouping import ENGINE, ShownFrame, essence, headline, state_of
from ..stacks.model import (
    CLIENT,
    DEBUGGED,
    HAS_ENDED,
    Frame,
    Mailbox,
    ProcStacks,
    ThreadStack,
    Wait,
)
from ..stacks.report import Stacks
from .model import COLLECTIVE, FROZEN, HOLDS, MUTE, POLLS, RUNS, STANDS, WAITS

_COMPUTES = 0.05  # of the time; what runs less only looks whether something has come
_STOPPED = {"T": "is stopped (SIGSTOP, or Ctrl-Z)", "t": "is stopped by a debugger"}
_DISK = "is in a system call that nothing interrupts: a disk, a network file system, a driver"
_COLLECTIVES = re.compile(
    r"(all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|gather|scatter|reduce|send|recv|monitored_barrier|wait"
    r"|init_process_group|new_group|_?rendezvous)\w*"
)
_COLLECTIVE_FILES = re.compile(r"/(torch/distributed|mpi4py|horovod)/")
_EDITOR = "/monarch/debugger/adapter.py"


@dataclass(eq=False, slots=True)
class RankActivity:
    """The activity of one rank.

    Attributes:
        thread: Of which that is true; None for a process that could not be looked into.
        lines: Its stack without what runs it.
        mesh: Sets its mesh apart from others; see `mesh_of`.
        state: See `model.STATES`.
        reason: As of `Standing`.
        seconds: For how long it has waited, else handled its call, if that is known.
        ran: Whether its thread has run at all between the looks, and where it was; see
            `in_process`.
        in_process: Of the time between the looks, in which any thread of its process has run.
        queued: Messages that wait for the actor.
    """

    proc: ProcStacks
    thread: ThreadStack | None
    endpoint: str
    lines: tuple[ShownFrame, ...]
    state: str
    reason: str = ""
    queued: int = 0
    ran: bool = False
    in_process: float = 0.0
    mesh: tuple[str, str] = field(init=False)
    seconds: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.mesh = mesh_of(self.proc)
        self.seconds = self.thread.handles if self.thread is not None else None
        if self.wait is not None:
            self.seconds = self.wait.age

    @property
    def actor(self) -> str:
        return self.thread.actor if self.thread is not None else ""

    @property
    def actor_id(self) -> int:
        return self.thread.actor_id if self.thread is not None else 0

    @property
    def wait(self) -> Wait | None:
        return self.thread.wait if self.thread is not None and self.state == WAITS else None

    @property
    def name(self) -> str:
        """The name for people: the actor and its rank; the mesh and the rank where it is none."""
        if self.proc.mesh == CLIENT and not self.actor:
            return CLIENT
        return f"{self.actor or self.proc.mesh}[{self.proc.rank}]"

    @property
    def is_for_items(self) -> bool:
        """True where a consumer waits for items of a queue or a replay buffer."""
        frames = self.thread.frames if self.thread is not None else ()
        in_line = any(frame.file.endswith("/monarch/queues/line.py") for frame in frames)
        return in_line and self.endpoint in ("get", "sample")

    @property
    def place(self) -> str:
        """Function, file and line, such as ``all_reduce (train.py:88)``."""
        return place(self.lines)


def mesh_of(proc: ProcStacks) -> tuple[str, str]:
    """Sets the meshes of a program apart: several may have one name."""
    return proc.mesh, proc.address.mesh if proc.address is not None else ""


def has_ended(proc: ProcStacks) -> bool:
    """Return whether a process has failed."""
    return proc.note.startswith(HAS_ENDED)


def told_apart(first: Stacks, second: Stacks) -> tuple[Stacks, Stacks]:
    """Two looks in which each mesh has a name of its own: several of one name are ``name#id``."""
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for proc in (*first.procs, *second.procs):
        if proc.address is not None and proc.mesh != CLIENT:
            ids[proc.mesh].add(proc.address.mesh)

    def named(proc: ProcStacks) -> ProcStacks:
        if proc.address is None or len(ids[proc.mesh]) < 2:
            return proc
        return proc._replace(mesh=f"{proc.mesh}#{proc.address.mesh}")

    return Stacks(list(map(named, first.procs)), first.silent), Stacks(
        list(map(named, second.procs)), second.silent
    )


def place(lines: Sequence[ShownFrame]) -> str:
    """The place of a stack, for people: what the program has called, and from where."""
    text = headline(lines)
    function, _, where = text.rpartition(" at ")
    called = collective([line.frame for line in lines])
    if not where:
        return text
    return f"{called or function} ({where})"


def nodes_of(
    first: Sequence[ProcStacks], second: Sequence[ProcStacks], seconds: float
) -> Iterator[RankActivity]:
    """Iterate over the ranks that do something.

    Args:
        first: Processes at the first look.
        second: Processes at the second look.
        seconds: Between the two looks.
    """
    before = {(mesh_of(proc), proc.rank, proc.pid): proc for proc in first}
    for proc in second:
        if proc.pid and not has_ended(proc):
            yield from _of(before.get((mesh_of(proc), proc.rank, proc.pid)), proc, seconds)


def _of(before: ProcStacks | None, proc: ProcStacks, seconds: float) -> Iterator[RankActivity]:
    still = frozen(before, proc)
    if still:
        yield RankActivity(proc, None, "", (), FROZEN, still)
        return
    if not proc.how:
        if before is not None and not before.how:
            yield RankActivity(proc, None, "", (), MUTE, proc.note or "does not answer")
        return
    stood, times = _before(before)
    mailboxes = {each.actor_id: each for each in proc.mailboxes}
    for thread, endpoint, lines in _primary(proc):
        mailbox = mailboxes.get(thread.actor_id)
        stands = bool(
            stood[endpoint, lines, thread.call] or (not thread.call and stood[endpoint, lines])
        )
        share, ran = _share(before, proc, thread, times, seconds)
        state, reason = _state(before, proc, thread, lines, share, ran) if stands else (RUNS, "")
        queued = mailbox.queued if mailbox is not None else 0
        yield RankActivity(
            proc, thread, endpoint, lines, state, reason, queued, ran,
            _in_process(before, proc, seconds),
        )  # fmt: skip


def frozen(before: ProcStacks | None, proc: ProcStacks) -> str:
    """Return why the kernel lets a process not run, if so."""
    if proc.kernel is None:
        return ""
    if proc.kernel.state in _STOPPED:
        return _STOPPED[proc.kernel.state]
    both = (
        before is not None
        and before.kernel is not None
        and before.kernel.state == "D" == proc.kernel.state
    )
    return _DISK if both and not proc.how else ""


def _before(before: ProcStacks | None) -> tuple[Mapping[Any, int], dict[str, int]]:
    """Return the activity of the process at the first look, with its call and without.

    With it is how long its threads had run.
    """
    stood: Counter[Any] = Counter()
    times: dict[str, int] = {}
    for thread, endpoint, lines in _primary(before) if before is not None else ():
        stood[endpoint, lines, thread.call] += 1
        stood[endpoint, lines] += 1
        times[_key(thread)] = thread.ran
    return stood, times


def _key(thread: ThreadStack) -> str:
    return f"{thread.name} {thread.actor_id}"


def _primary(proc: ProcStacks) -> Iterator[tuple[ThreadStack, str, tuple[ShownFrame, ...]]]:
    """The threads and tasks of the program.

    They are calls of actors, and the main thread of the program itself.
    """
    for thread in proc.threads:
        endpoint, lines = essence(thread)
        if not lines:
            continue
        is_main = proc.mesh == CLIENT and (
            thread.name == "MainThread" or lines[-1].frame.function == "<module>"
        )
        if endpoint or is_main:
            yield thread, endpoint, lines


def _share(
    before: ProcStacks | None,
    proc: ProcStacks,
    thread: ThreadStack,
    times: Mapping[str, int],
    seconds: float,
) -> tuple[float, bool]:
    """The share of the time between the looks in which the thread has run, and whether it has.

    Where that is not known, it is that of all threads of the process, some of which always run
    a little.
    """
    then = times.get(_key(thread), -1)
    if thread.ran >= 0 and then >= 0:
        return (thread.ran - then) / 1e9 / seconds, thread.ran > then
    return _in_process(before, proc, seconds), False


def _in_process(before: ProcStacks | None, proc: ProcStacks, seconds: float) -> float:
    if before is None or before.kernel is None or proc.kernel is None:
        return 0.0
    return (proc.kernel.ran - before.kernel.ran) / 1e9 / seconds


def _state(
    before: ProcStacks | None,
    proc: ProcStacks,
    thread: ThreadStack,
    lines: Sequence[ShownFrame],
    share: float,
    ran: bool,
) -> tuple[str, str]:
    """The state of a node that is where it was."""
    if any(_EDITOR in frame.file for frame in thread.frames):
        return DEBUGGED, "is stopped in an editor"
    if state_of(thread) == DEBUGGED:
        return DEBUGGED, "is stopped in the debugger: monarch debug"
    if before is not None and proc.how == before.how == "signal":
        return (
            HOLDS,
            f"C code holds the GIL, and {'computes' if share >= _COMPUTES else 'does not run'}",
        )
    if thread.wait is not None or (thread.waits_for and lines[0].kind == ENGINE):
        return WAITS, f"waits for {thread.waits_for.partition(';')[0]}"
    if collective(thread.frames):
        return COLLECTIVE, ""
    if share >= _COMPUTES:
        return RUNS, ""
    if ran:
        return POLLS, "sleeps, and looks again"
    return STANDS, thread.inside


def collective(frames: Sequence[Frame]) -> str:
    """The collective that a stack is in, as the program has called it; empty if none."""
    for frame in reversed(frames):
        if _COLLECTIVE_FILES.search(frame.file) and _COLLECTIVES.fullmatch(frame.function):
            return frame.function
    return ""


def full_mailboxes(procs: Sequence[ProcStacks]) -> Iterator[tuple[ProcStacks, Mailbox]]:
    """The mailboxes that take no more."""
    for proc in procs:
        for mailbox in proc.mailboxes:
            if mailbox.paused:
                yield proc, mailbox
