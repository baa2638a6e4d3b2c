"""Control records between a stopped rank, the root client and a terminal, and their content.

The handlers are in modules that only one side needs, which are imported when the first record
comes.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any, NamedTuple

from .._core.plane import (
    ControlRequest,
    ControlService,
    Failure,
    ProcAddress,
    Reply,
    handles,
    read_answer,
    refusal,
)


def framed(message: bytes) -> bytes:
    """Return a message of the Debug Adapter Protocol with its header."""
    return b"Content-Length: %d\r\n\r\n%s" % (len(message), message)


def value_of(reply: Reply) -> Any:
    """Return the value that was answered; None where the process has failed, or refused."""
    if isinstance(reply, Failure) or refusal(reply) is not None:
        return None
    return read_answer(reply)


class Who(NamedTuple):
    """An actor in the debugger.

    Attributes:
        coordinates: Its position in its mesh, by dimension.
        host: The name of its machine.
        pid: Of its process.
        uid: Id of the actor there.
        mesh: Name of the mesh of its process.
    """

    name: str
    rank: int
    coordinates: dict[str, int]
    host: str
    pid: int
    uid: int
    mesh: str = ""

    def goes_by(self, name: str) -> bool:
        """Return whether commands mean it by a name: its own, or that of its mesh."""
        return name in (self.name, self.mesh)

    def __str__(self) -> str:
        return f"{self.name} {self.rank}"


class StackLine(NamedTuple):
    """One frame of a stack."""

    file: str
    number: int
    function: str
    source: str


class StopPlace(NamedTuple):
    """The place at which a rank has stopped.

    Attributes:
        why: ``breakpoint()``, or what else has stopped it.
        stack: Its frames, without those of the engine; the innermost last.
    """

    why: str
    stack: tuple[StackLine, ...]

    @property
    def line(self) -> StackLine:
        """The exact position."""
        return self.stack[-1] if self.stack else StackLine("?", 0, "?", "")


# What a session says, in the order in which it happens: (kind, text, place).
OUTPUT = "output"  # something to be shown
PROMPT = "prompt"  # it waits for a line, after this prompt, at a place
RUNNING = "running"  # it goes on
ENDED = "ended"  # it is over, and why
TAKEN = "taken"  # to a terminal: another terminal has taken it over
Event = tuple[str, str, "StopPlace | None"]


class Row(NamedTuple):
    """A session, as a list of them shows it.

    Attributes:
        number: The table's name for it.
        label: Its rank; with ``/2`` behind it, and so on, where an actor has several.
        place: Where it has stopped; where it was last, while it runs.
        stopped: Whether it waits for commands.
        since: Seconds since it has stopped, or goes on.
        driver: Name of the attached terminal or editor; empty if it is free.
        in_editor: Whether that is an editor, which takes no commands from a terminal.
    """

    number: int
    who: Who
    label: str
    place: StopPlace
    stopped: bool
    since: float
    driver: str
    in_editor: bool = False


# to the root client


class Opened(NamedTuple):
    """An actor has stopped that was not in the debugger.

    Its proc ──▶ root client, which then follows the session.

    Attributes:
        editor: Who has stopped it, and lets it go on: an editor; empty where that is done by
            terminals.
    """

    number: int
    who: Who
    place: StopPlace
    editor: str = ""


class Offered(NamedTuple):
    """Editors can attach here, as `configure(debug_adapter=True)` wants it.

    Proc ──▶ root client, when it has an actor.
    """


class GetSource(NamedTuple):
    """The text of a module.

    Proc ──▶ root client. Answer: it; None if the client has none, or it is too long.
    """

    file: str


class ListSessions(NamedTuple):
    """List the sessions. Terminal ──▶ root client. Answer: a list of `Row`, by name and rank."""


class Drive(NamedTuple):
    """Attach a terminal to a session. Terminal ──▶ root client.

    Answers: first whether it is attached, or an error that says why not; then each `Event`, until
    it ends or is taken over. A terminal that has ended is detached.

    Attributes:
        terminal: Its name: a number that no other terminal has.
        driver: Its name, for others that list sessions.
        take: Whether to take it from who is attached already.
    """

    session: int
    terminal: int
    driver: str
    take: bool


class Release(NamedTuple):
    """Detach from a session, which waits on. Terminal ──▶ root client. Answer: None."""

    session: int
    terminal: int


class Send(NamedTuple):
    """A line for the debugger of a session.

    Terminal ──▶ root client. Answer: why it was not passed on, or empty.
    """

    session: int
    terminal: int
    line: str


class Ask(NamedTuple):
    """How may the line go on?

    Terminal ──▶ root client. Answer: a list of words; empty while the session does not wait.
    """

    session: int
    line: str
    begin: int
    end: int


# to a proc


class Follow(NamedTuple):
    """Say what a session says.

    Root client ──▶ proc. Answers: each `Event`, up to `ENDED`. A proc that has ended: so has it.
    """

    number: int


class Type(NamedTuple):
    """A line for a session. Root client ──▶ proc."""

    number: int
    line: str


class TerminalAttached(NamedTuple):
    """Tell whether a terminal is attached.

    Sessions that are kept only until one looks are kept as long as it does. Root client ──▶
    proc.
    """

    number: int
    watched: bool


class Complete(NamedTuple):
    """How may the line go on? Root client ──▶ proc. Answer: a list of words."""

    number: int
    line: str
    begin: int
    end: int


class SetBreakpoint(NamedTuple):
    """Stop each thread that gets there. Terminal ──▶ proc.

    Answer: why that can't be, or empty, and the file as the proc knows it; None where no actor has
    one of the ranks.

    Attributes:
        ranks: Of actors, as `RankSelector` reads them; empty for all.
    """

    file: str
    line: int
    condition: str
    ranks: str


class ListBreakpoints(NamedTuple):
    """Which breakpoints are there? Terminal ──▶ proc. Answer: a list of texts."""


class ClearBreakpoint(NamedTuple):
    """Do not stop there any more. Terminal ──▶ proc. Answer: how many breakpoints that were."""

    file: str
    line: int


class Interrupt(NamedTuple):
    """Stop actors at their next line.

    Terminal ──▶ proc. Answer: for each of these that the proc has, its rank and, in words, where it
    is now.

    Attributes:
        name: Name of the actors.
        ranks: Which of them, as `RankSelector` reads it; empty for all.
    """

    name: str
    ranks: str


class InDebugger(NamedTuple):
    """Time limits of calls to these actors do not run out.

    Root client ──▶ proc. Answer: the ids of actors there that wait for one.

    Attributes:
        actors: Their procs and ids, all of them.
    """

    actors: tuple[tuple[ProcAddress, int], ...]


class Attach(NamedTuple):
    """Let an editor debug this process. Terminal ──▶ proc.

    Answers: what the debugger says, bytes each; empty bytes as the last. An error where it is not
    installed, or another editor is attached.

    Attributes:
        session: A number that no other has.
        editor: Who it is, for people who list who is in the debugger.
    """

    session: int
    editor: str


class Said(NamedTuple):
    """The editor's bytes. Terminal ──▶ proc."""

    session: int
    data: bytes


class Detach(NamedTuple):
    """The editor has left. Terminal ──▶ proc."""

    session: int


_TAKEN_BY: dict[str, tuple[type, ...]] = {
    "adapter": (Attach, Said, Detach),
    "debuggee": (Follow, Type, TerminalAttached, Complete, SetBreakpoint, ListBreakpoints, ClearBreakpoint, Interrupt),
    "editors": (Offered,),
    "patience": (InDebugger,),
    "table": (Opened, GetSource, ListSessions, Drive, Release, Send, Ask),
}  # fmt: skip
"""Which module takes which records."""


def _handler(module: str, kind: type) -> Any:
    @handles(kind)
    def handle(service: ControlService, request: ControlRequest, record: Any) -> None:
        acting: Any = importlib.import_module(f"{__package__}.{module}")
        # a console in this very process asks on its own thread, in the midst of what another says
        service.hub.poller.call_here_or_soon(partial(acting.take, service.hub, request, record))

    return handle


HANDLERS = [_handler(module, kind) for module, kinds in _TAKEN_BY.items() for kind in kinds]
