"""Stacks as values: of a frame, a thread, a process."""

from __future__ import annotations

from collections.abc import Mapping

from .._core.plane import ProcAddress
from .._namedtuple import NamedTuple

CLIENT = "client"
"""What takes the place of a mesh's name for the process of the program itself."""

HAS_ENDED = "has ended"
"""How the note of a process begins that is gone."""

DEBUGGED = "debugged"
"""State of a thread in the debugger, as verdicts name it."""


class Frame(NamedTuple):
    """A function that has been entered.

    Attributes:
        line: In which it is; 0 if that is not known.
    """

    function: str
    file: str
    line: int


class Wait(NamedTuple):
    """A wait for answers, or for room in a mailbox.

    Attributes:
        age: Seconds for which it has lasted; None where that is not noted.
        actor: Id of the actors that owe an answer.
        silent: Their processes.
        call: Which call they owe it to: what their `ThreadStack.call` begins with, before the rank;
            empty if it is not known.
    """

    age: float | None
    actor: int
    silent: tuple[ProcAddress, ...]
    call: str = ""


class ThreadStack(NamedTuple):
    """The stack of a thread, or of a suspended task of an event loop.

    Attributes:
        name: Of the thread; empty where the process could not be asked.
        actor: Name of the actor that it runs; empty if none, or unknown.
        endpoint: The endpoint that it runs; empty if none, or unknown.
        waits_for: What it waits for, in words; empty if it does not, or waits for something that
            Monarch does not know.
        frames: The innermost first.
        actor_id: Of that actor; 0 if none, or unknown.
        call: Which call it handles, the same for as long as it does; empty if none, or unknown.
        wait: What it waits for, if that is known to be an answer of actors.
        ran: CPU time of the thread so far, in nanoseconds; -1 if unknown.
        inside: The system call in which it is, in words; empty where it is in none, or the kernel
            does not tell.
        handles: For how many seconds it has handled that call; None if less than one, or unknown.
    """

    name: str
    frames: tuple[Frame, ...]
    actor: str = ""
    endpoint: str = ""
    waits_for: str = ""
    actor_id: int = 0
    call: str = ""
    wait: Wait | None = None
    ran: int = -1
    inside: str = ""
    handles: float | None = None


class Mailbox(NamedTuple):
    """An actor, as what takes messages.

    Attributes:
        actor: Its name.
        actor_id: Its id.
        queued: Messages that wait.
        paused: Processes that may not send it more, as it is full.
    """

    actor: str
    actor_id: int
    queued: int
    paused: tuple[ProcAddress, ...]


class Kernel(NamedTuple):
    """The kernel's view of a process.

    Attributes:
        state: A letter: R runs, S sleeps, D is in a system call that nothing interrupts, T is
            stopped, t by a debugger, Z has ended.
        ran: CPU time so far, in nanoseconds.
        swapped: Bytes that are in swap.
        faults: How often it had to wait for a page from a disk so far.
    """

    state: str
    ran: int
    swapped: int
    faults: int


class ProcStacks(NamedTuple):
    """The stacks of one process.

    Attributes:
        mesh: Name of its mesh; `CLIENT` for the program itself.
        rank: Its rank there.
        size: Ranks of that mesh.
        pid: Its process.
        host: Name of its machine.
        how: How they were had: from the process ``"itself"``, by a ``"signal"``, by ``"py-spy"``;
            empty if they were not.
        note: A remark on the process: it is stopped, has ended, does not answer.
        threads: Its threads.
        address: Of the process.
        coordinates: Its rank, by dimension of the mesh.
        mailboxes: Its actors; none where it could not be asked.
        kernel: What the kernel says; None of a process that has ended, or not started.
        ago: Seconds since its agent has learned of its end; None of one that runs.
        stepped: Seconds since it has marked a step; None of one that marks none.
    """

    mesh: str
    rank: int
    size: int
    pid: int
    host: str
    how: str
    note: str
    threads: tuple[ThreadStack, ...]
    address: ProcAddress | None = None
    coordinates: Mapping[str, int] = {}
    mailboxes: tuple[Mailbox, ...] = ()
    kernel: Kernel | None = None
    ago: float | None = None
    stepped: float | None = None
