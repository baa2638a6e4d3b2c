"""The running Monarch programs of this user on this machine, and connections to them.

`find` lists them: each has a private folder with the socket of its host agent, so nothing has to be
registered, or to be cleaned up. `connect` makes this process a client on the host of one, beside
the program's own: from then on it can send control records to each of its processes, on all of its
hosts, over the connections that the program has. It opens no port, keeps nothing alive, and sees
none of the output.

What ends a wait: the end of the process that is asked, or of the program; the time limit of
``get(timeout=)`` for one that is stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ._core import plane
from ._core.plane import DescribeHost, HostDescription, HostedProc, ProcAddress
from ._namedtuple import NamedTuple
from ._patterns.guest import join
from ._proc_stat import status_field
from ._public import RELEASE
from ._words import HOST_NAMES, host_named
from .actor import Future, shutdown_context

# for the packages that are built on this one
__all__ = [
    "PATIENCE", "Connection", "DescribeHost", "Gathering", "HostDescription", "HostedProc", "ProcAddress", "Program",
    "StartAgain", "agents_here", "agents_of", "ask", "ask_agents", "choose", "connect", "find", "procs_of", "start_host",
]  # fmt: skip

PATIENCE = 5.0
"""Seconds in which an agent answers.

It runs no user code: one that takes longer is stopped, or the machine is.
"""

R = TypeVar("R")


class Program(NamedTuple):
    """A program that uses hosts, or a worker, which is a host for programs elsewhere.

    Attributes:
        pid: Process of the client, or of the worker; 0 if it is in another namespace than this one.
        command: Its command line.
        since: When its host came up, in seconds since 1970.
        is_worker: Whether it is a worker.
        host: Name of its host on this machine.
        folder: Its working directory; empty where that can't be told.
    """

    pid: int
    command: str
    since: float
    is_worker: bool
    host: str
    folder: str = ""

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


class Connection:
    """This process as a client of a running program.

    It is closed as a context manager, or with the process.

    Attributes:
        hub: From which control records are sent.
        program: Which program.
        description: Its own host.
    """

    def __init__(self, hub: plane.Hub, program: Program, description: HostDescription) -> None:
        self.hub = hub
        self.program = program
        self.description = description
        HOST_NAMES.update(description.names)

    @property
    def root(self) -> ProcAddress:
        """The client process of the program; the agent of a worker."""
        return self.description.root

    @property
    def owner(self) -> ProcAddress | None:
        """The client that owns all processes there.

        On the host of a worker it is None, as several clients may use it.
        """
        return None if self.program.is_worker else self.root

    @property
    def agents(self) -> list[ProcAddress]:
        """The agents of all its hosts, its own first."""
        return agents_of([self.description.agent.host, *self.description.hosts])

    def ask(self, process: ProcAddress, record: tuple[Any, ...]) -> Future[Any]:
        """Send a control record with one answer to a process of the program, on any of its hosts.

        Returns:
            A future of the answer. It raises `SupervisionError` if the process has ended, and what
            the handler has raised.
        """
        return ask(self.hub, process, record)

    def wait(self) -> None:
        """Wait for the end of the program; in the main thread, Ctrl-C ends that too."""
        ended: plane.Promise[None] = plane.Promise("the program to end")

        def lost(address: ProcAddress, failure: plane.Failure) -> None:
            if address == self.description.agent:
                ended.resolve(None)

        self.hub.peer_lost_hooks.append(lost)
        # else it was before anybody could say so
        if self.hub.process_fate(self.description.agent) is None:
            ended.future.get()

    def close(self) -> None:
        """Be no client of the program any more: what waits for an answer is told so."""
        shutdown_context().get()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def find() -> list[Program]:
    """The workers, and the programs that have started a host, of this user on this machine.

    The oldest is first.
    """
    found = [_program(*each) for each in plane.hosts_here()]
    return sorted(
        (each for each in found if each.pid != os.getpid()), key=lambda program: program.since
    )


def connect(program: int | Program | None = None) -> Connection:
    """Connect to a running program.

    Args:
        program: Its process id, or one that `find` gave; None for the only one that there is,
            workers apart; if there are several, the only one that was started in this working
            directory.

    Raises:
        ConnectionError: There is none, or it does not answer within `PATIENCE` seconds, or has just
            ended.
        ValueError: There are several, or none of that id; the message lists them.
        RuntimeError: This process uses Monarch already.
    """
    chosen = program if isinstance(program, Program) else choose(program, find())
    description = _join(chosen, chosen.host)
    if description.agent.host != chosen.host:  # a worker: its host goes by an address
        shutdown_context().get()
        description = _join(chosen, description.agent.host)
    return Connection(plane.current_hub(), chosen, description)


def ask(hub: plane.Hub, process: ProcAddress, record: tuple[Any, ...]) -> Future[Any]:
    """As `Connection.ask`, from any hub."""
    return _ask(hub, process, record, plane.read_answer)


def _ask(
    hub: plane.Hub, process: ProcAddress, record: tuple[Any, ...], read: Callable[[Any], R]
) -> Future[R]:
    promise: plane.Promise[R] = plane.Promise(f"{type(record).__name__} of {process}")
    plane.ask_one(hub, process, record, lambda reply: promise.resolve(reply, read))
    return promise.future


def ask_agents(hosts: Sequence[str], record: tuple[Any, ...]) -> list[Future[Any]]:
    """As `Connection.ask`, of the agents of hosts that this program knows."""
    hub = plane.current_hub()
    return [ask(hub, agent, record) for agent in agents_of(hosts)]


def agents_of(hosts: Sequence[str]) -> list[ProcAddress]:
    """The agents of hosts, by their names."""
    return [ProcAddress(host, "").agent for host in hosts]


def start_host() -> plane.Hub:
    """Start the agent of this machine, by which others find the program.

    A program that has spawned nothing may not have it yet. Returns the hub of this process.
    """
    hub = plane.current_hub()
    if hub.address == hub.root:
        plane.client().ensure_agent()
    return hub


def agents_here() -> Future[list[ProcAddress]]:
    """The agents of all hosts of this program, whichever of its processes this is."""
    hub = start_host()
    agent = hub.root.agent

    def read(reply: Any) -> list[ProcAddress]:
        description: HostDescription = plane.read_answer(reply)
        HOST_NAMES.update(description.names)
        return agents_of([agent.host, *description.hosts])

    return _ask(hub, agent, DescribeHost(), read)


def of_all_hosts(what: str, ask: Callable[[list[ProcAddress]], Future[R]]) -> Future[R]:
    """Return what `ask` gives for the agents of all hosts of this program; no thread waits.

    Args:
        what: Description of the wait, for time-out errors.
        ask: Called with the agents, as soon as they are known.
    """
    found: plane.Promise[R] = plane.Promise(what)

    def asked(agents: Future[list[ProcAddress]]) -> None:
        try:
            answers = ask(agents.get())
        except BaseException as error:  # an error of this callback would be lost
            found.reject(error)
        else:
            plane.when_done(answers, lambda done: found.resolve(done, Future.get))

    plane.when_done(agents_here(), asked)
    return found.future


def procs_of(
    hub: plane.Hub,
    agents: Sequence[ProcAddress],
    silent: Callable[[str, str], object],
    seconds: float = PATIENCE,
) -> list[HostedProc]:
    """List the procs on hosts, of any owner.

    Args:
        hub: The hub that asks.
        agents: Of the hosts.
        silent: Called for each host that can't be reached, with its name and why.
        seconds: In which a host must answer.
    """
    if not agents:
        return []
    hosts = _Hosts(agents, f"the procs of {len(agents)} hosts")
    found = hosts.ask(hub, DescribeHost(), seconds).get()
    for host, why in sorted(hosts.silent.items()):
        silent(host_named(host), why)
    return found


class Gathering(plane.Promise[R]):
    """The answers of many agents to one record, as one; `read` makes it.

    Used on the I/O thread, and done when each agent has answered, is lost, or is late.

    Args:
        agents: Who is asked.
        what: What for, as a `TimeoutError` shows it.

    Attributes:
        silent: Hosts that have not answered, and why; see `name_of`.
    """

    LATE = "did not answer within {:g} s"
    """Why a host is silent that has not answered in so many seconds."""

    def __init__(self, agents: Sequence[ProcAddress], what: str) -> None:
        self.silent: dict[str, str] = {}
        self._agents = agents
        self._frames: dict[int, Any] = {}
        self._waiting = set(range(len(agents)))
        super().__init__(what)

    def ask(self, hub: plane.Hub, record: tuple[Any, ...], seconds: float) -> Future[R]:
        """Send it; processes that have not answered after some seconds are late."""
        plane.send_record(hub, self._agents, record, self)
        timer = hub.poller.call_later(seconds, lambda: self._time_is_up(seconds))
        plane.subscribe(self.future, timer.cancel)
        return self.future

    def read(self, frames: Sequence[Any]) -> R:
        """Decode the answers, in the order of the agents.

        Runs in the thread that reads the future.
        """
        raise NotImplementedError

    def name_of(self, rank: int) -> str:
        """The name by which `silent` knows one of the processes that are asked."""
        return self._agents[rank].host

    def reply(self, frame: Any) -> bool:
        if frame.rank in self._waiting:
            why = plane.refusal(frame)
            if why is None:
                self._frames[frame.rank] = frame
            else:
                self.silent[self.name_of(frame.rank)] = why
        return self._came(frame.rank)

    def peer_failed(self, address: ProcAddress, failure: plane.Failure) -> bool:
        # one that is lost after it has answered is as it has said
        for rank in self._waiting.copy():
            if self._agents[rank] == address:
                self.silent[self.name_of(rank)] = failure.reason
                self._came(rank)
        return not self._waiting

    def _time_is_up(self, seconds: float) -> None:
        for rank in self._waiting.copy():
            self.silent[self.name_of(rank)] = self.LATE.format(seconds)
            self._came(rank)

    def _came(self, rank: int) -> bool:
        if rank in self._waiting:
            self._waiting.remove(rank)
            if not self._waiting:
                self.resolve([self._frames[rank] for rank in sorted(self._frames)], self.read)
        return not self._waiting


class _Hosts(Gathering[list[HostedProc]]):
    def read(self, frames: Sequence[Any]) -> list[HostedProc]:
        return [
            proc
            for frame in frames
            for proc in plane.pickling.loads(frame.payload, frame.buffers).procs
        ]


class StartAgain(NamedTuple):
    """Have your worker start again when you have been shut down.

    A client ──▶ the host agents of workers. Answer: whether the worker knows how to.

    Attributes:
        number: The signal by which a worker is told.
        sure: Do it; else it is only a question.
    """

    number: int
    sure: bool


@plane.handles(StartAgain)
def _start_again(
    service: plane.ControlService, request: plane.ControlRequest, record: StartAgain
) -> None:
    worker = os.getppid()
    caught = int(status_field(worker, "SigCgt"), 16)
    known = service.hub.address == service.hub.root and bool(caught & 1 << (record.number - 1))
    if known and record.sure:
        os.kill(worker, record.number)
    request.answer(known)


def choose(pid: int | None, found: list[Program]) -> Program:
    """Return the program that is meant of those that `find` gave; see `connect`."""
    if pid is None:
        programs = [each for each in found if not each.is_worker] or found
        if not programs:
            raise ConnectionError("no Monarch program of yours runs on this machine")
        here = programs
        if len(programs) != 1:
            here = [each for each in programs if each.folder == os.getcwd()]
        if len(here) != 1:
            raise ValueError(
                f"{len(programs)} programs run here, say which:{_listed(here or programs)}"
            )
        return here[0]
    for each in found:
        if each.pid == pid:
            return each
    raise ValueError(
        f"{pid} is no Monarch program of yours on this machine; there"
        f" {'are:' if found else 'is none'}{_listed(found)}"
    )


def _join(program: Program, host: str) -> HostDescription:
    try:
        join(host, program.host)
        agent = plane.current_hub().address.agent
        description: HostDescription = ask(plane.current_hub(), agent, DescribeHost()).get(
            timeout=PATIENCE
        )
        if description.release != RELEASE:
            raise LookupError(f"{description.release}, and this process is of {RELEASE}")
    except TimeoutError:
        shutdown_context(0)
        raise ConnectionError(f"program {program} does not answer: is its agent stopped?") from None
    except LookupError as error:
        shutdown_context(0)
        raise ConnectionError(
            f"program {program} is of another version of pymonarch: {error}"
        ) from None
    except Exception as error:
        shutdown_context(0)
        raise ConnectionError(f"program {program} has just ended") from error
    return description


def _program(host: str, pid: int, since: float, is_worker: bool) -> Program:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").decode(errors="replace").split("\0")
        folder = os.readlink(f"/proc/{pid}/cwd")
    except OSError:  # of another namespace, or just ended
        words, folder = ["?"], ""
    # what its launcher has told it; see `monarch.job.base.contract`
    if is_worker and words[-1].startswith("{"):
        with suppress(ValueError, KeyError):
            told = json.loads(words[-1])
            words = ["monarch worker", f"{told['mesh']}[{told['rank']}]"]
    return Program(pid, " ".join(words), since, is_worker, host, folder)


def _listed(programs: list[Program]) -> str:
    return "".join(f"\n  {program}" for program in programs)


HANDLERS = (_start_again,)
