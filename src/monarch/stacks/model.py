"""Stacks as values: of a frame, a thread, a process."""

from __future__ import annotations

from .._namedtuple import NamedTuple

CLIENT = "client"
"""What takes the place of a mesh's name for the process of the program itself."""


class Frame(NamedTuple):
    """A function that has been entered.

    Attributes:
        line: In which it is; 0 if that is not known.
    """

    function: str
    file: str
    line: int


class ThreadStack(NamedTuple):
    """What a thread runs, or what a suspended task of an event loop would go on with.

    Attributes:
        name: Of the thread; empty where nobody could ask for it.
        actor: Name of the actor that it runs; empty if none, or where nobody could ask.
        endpoint: The endpoint that it runs, likewise.
        waits_for: What it waits for, in words; empty if it does not, or waits for something that Monarch does not know.
        frames: The innermost first.
    """

    name: str
    frames: tuple[Frame, ...]
    actor: str = ""
    endpoint: str = ""
    waits_for: str = ""


class ProcStacks(NamedTuple):
    """The stacks of one process.

    Attributes:
        mesh: Name of its mesh; `CLIENT` for the program itself.
        rank: Its rank there.
        size: Ranks of that mesh.
        pid: Its process.
        host: Name of its machine.
        how: How they were had: from the process ``"itself"``, by a ``"signal"``, by ``"py-spy"``; empty if they were not.
        note: What is to be said of the process beside that: it is stopped, has ended, does not answer.
        threads: Its threads.
    """

    mesh: str
    rank: int
    size: int
    pid: int
    host: str
    how: str
    note: str
    threads: tuple[ThreadStack, ...]
