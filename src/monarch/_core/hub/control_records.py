"""Control records: typed requests to a process itself, rather than to its actors.

A record travels as a call to the id `SYSTEM`: its name in the meta, its fields as a plain tuple in
the payload. Nothing of its class is pickled, so that a record costs no more than the call of an
endpoint with these arguments. The records of this file go by their class's name, those of a plane
(``rdma``, ``tensor_engine``) by that of their module and class, so that a process can import the
plane which a record is for.

`control.send_record` sends one; ``@handles(Record)`` marks the function that takes it, see
`control_service`. The receiver of a record of no meaning, or with other fields, answers with an
error.

Each docstring gives: sender ──▶ receiver, the answer, and what it means if the receiver has ended.
"None" is an answer without content; without "Answer" there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..._namedtuple import NamedTuple
from ..._public import RELEASE
from ..supervision.deadlock import Probe
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from .spawn_requests import SpawnRequest, SpawnSpec

if TYPE_CHECKING:
    from ..net.trust import Trust


@functools.cache
def name_on_wire(record: type) -> bytes:
    """Return the name of a kind of record on the wire."""
    name = record.__name__
    if record.__module__ != __name__:
        name = f"{record.__module__}.{name}"
    return name.encode()


# to a process that runs actors: a proc, or the client


class SpawnActor(NamedTuple):
    """Create one rank of an actor mesh. Its owner ──▶ each proc.

    Answer: None, once it may begin, which a bootstrap function delays; the error of that function,
    if it has failed. A proc that has ended: so has the actor.

    Attributes:
        payload: Pickle of the class and its constructor's arguments, opened by the actor's thread;
            a `PickleBuffer` where it is sent, which keeps a large one out of band, and bytes where
            it arrives.
        buffers: What belongs to that pickle and is out of band; also such.
        gated: Whether it waits for the bootstrap function; False for the actor that runs that.
    """

    spec: SpawnSpec
    is_async: bool
    payload: Any
    buffers: list[Any]
    gated: bool


class StopActor(NamedTuple):
    """Stop one actor; for good, unless it is to be started `again`. Its owner ──▶ its proc, urgent.

    Answer: None, when it has ended, within ``cleanup_timeout`` unless no thread of the proc runs.
    It may overtake `SpawnActor`, and then keeps the actor from being made. A proc that has ended:
    the actor has stopped.
    """

    uid: int
    reason: str
    again: bool = False


class GetIncarnation(NamedTuple):
    """How often has an actor been started again?

    Anybody ──▶ its proc. Answer: that number, or the failure of the actor; the end of the proc is
    one.
    """

    uid: int


class GetStatistics(NamedTuple):
    """Count what a process has done.

    Any process ──▶ a process with actors. Answer: `ProcStatistics`.

    It is also how to wait for a process to serve, or to serve again: the record waits for it.
    """


class CloseGate(NamedTuple):
    """Hold back the actors that are made from now on until the bootstrap function has run.

    Owner ──▶ each proc.
    """


class OpenGate(NamedTuple):
    """The bootstrap function has run, on all procs. Owner ──▶ each proc.

    Attributes:
        error: The error that it raised instead, as `relay_error` gives it: the answer of every
            actor here from now on.
    """

    error: bytes | None


class ProcsEnded(NamedTuple):
    """Procs that an actor here owns have ended, or count as ended.

    Host agent ──▶ process of the owner.

    A process of the owner that has ended owns nothing any more.
    """

    ended: list[tuple[ProcAddress, Failure]]


class LookAfter(NamedTuple):
    """A request to check the thread of an actor that a caller has waited long for.

    The waiting actor ──▶ its process.

    No answer: a thread that is gone fails the actor, which those who wait are told.
    """

    uid: int


class AskWhatKeeps(NamedTuple):
    """Edge chasing: what keeps an actor from answering a call?

    Process of the waiting actor ──▶ that of the awaited one, and so on.

    No answer: it comes back to the process that began if there is a deadlock. A process that has
    ended ends the wait.
    """

    probe: Probe


class LetGo(NamedTuple):
    """The owner of a full mailbox waits for an actor here. ──▶ process of that actor.

    Attributes:
        wait: Number of that wait there.
    """

    wait: int


class PortNews(NamedTuple):
    """A copy of a response port has arrived, or what became of it. Its process ──▶ the actor's.

    The actor's process has ended: so has the call.

    Attributes:
        caller: The process that had called.
        request: Number of the call there.
        rank: Rank that was called.
        news: `open_response.ARRIVED`, and so on.
        message: Number of the message that has brought the copy, or takes one away; else 0.
        ranks: How many ranks the message was for that has brought it; else 0.
    """

    caller: ProcAddress
    request: int
    rank: int
    news: int
    message: int
    ranks: int


class StopProc(NamedTuple):
    """Stop every actor, then end. Host agent ──▶ its proc; the end of the process is the answer."""

    why: Failure


# to a host agent: procs


class SpawnProcs(NamedTuple):
    """Start procs of a new mesh.

    Its owner ──▶ the agent of each host, with the position of the host in the mesh as rank.

    Answer: True when all procs of the host serve; an error if one could not be started, or not in
    time. An agent that has ended: so have its procs.
    """

    request: SpawnRequest


class RestartProcs(NamedTuple):
    """Start procs again that have ended, or never came up, under their old names.

    As `SpawnProcs`; an error if the mesh was stopped meanwhile.
    """

    request: SpawnRequest


class AbandonProcs(NamedTuple):
    """These procs will not start again: tell those who wait for that.

    Owner ──▶ host agent. Answer: None.
    """

    mesh: str
    ranks: list[int]


class StopMesh(NamedTuple):
    """Stop procs, and let them clean up.

    Owner ──▶ host agent. Answer: None, when they are gone: within ``cleanup_timeout`` plus
    ``process_exit_timeout``. An agent that has ended: they are gone.

    Attributes:
        ranks: Which; None for all those of the host, for good.
    """

    mesh: str
    ranks: list[int] | None
    reason: str


class KillProcs(NamedTuple):
    """Kill procs, which is a failure for their owner.

    Anybody ──▶ host agent. Answer: None, when they are gone and the owner was told.
    """

    mesh: str
    ranks: list[int]
    reason: str


class ProcReady(NamedTuple):
    """A proc serves. The proc ──▶ its agent.

    Attributes:
        pid: Its process: this may come before the spawner's word of it.
        box: Descriptor of its black box; -1 if it has none.
    """

    pid: int
    box: int


class MeshNamed(NamedTuple):
    """Procs without a name go by that of the first actors on them. The proc ──▶ its agent."""

    mesh: str
    name: str


class ResolveProc(NamedTuple):
    """Ask for the state of a proc. Any process of the host ──▶ its agent.

    Answer: None if it listens, else its `Failure`, when that is known: within seconds for a proc
    after its connection broke, within ``pending_actor_delivery_timeout`` for one that was never
    heard of. An agent that has ended: so has the proc.

    Attributes:
        connected: When the connection to it that broke was made (`time.monotonic`); 0 if there was
            none.
    """

    name: str
    connected: float


class DescribeHost(NamedTuple):
    """Describe a host. Any process ──▶ host agent. Answer: `HostDescription`.

    Attributes:
        ended: Tell of procs that have ended, too, until their mesh is stopped.
    """

    ended: bool = False


class HostedProc(NamedTuple):
    """One proc of a host, as its agent sees it.

    Attributes:
        mesh: Name of its mesh.
        rank: Its rank there.
        size: Number of ranks of that mesh.
        coordinates: The rank's, by dimension.
        mesh_id: Id of that mesh, the same on all hosts.
        state: See `processes.proc_entry`.
        root: The client that it belongs to.
        end: How it ended, if it has.
    """

    address: ProcAddress
    pid: int
    mesh: str
    rank: int
    size: int
    coordinates: dict[str, int]
    mesh_id: str
    state: str
    root: ProcAddress
    end: Failure | None = None


class HostDescription(NamedTuple):
    """The processes on a host.

    Attributes:
        agent: Its agent, by the name that other hosts know.
        root: The client that has started it; the agent itself where a worker has.
        root_pid: Its process.
        machine: Name of the machine, for people, with the place of a worker in its job.
        hosts: Other hosts that the client has attached.
        procs: Those that have not ended, unless the others were asked for as well.
        release: Of its pymonarch.
        hostname: Name of the machine alone.
        names: See `JoinHosts`.
    """

    agent: ProcAddress
    pid: int
    root: ProcAddress
    root_pid: int
    machine: str
    hosts: list[str]
    procs: list[HostedProc]
    release: str = RELEASE
    hostname: str = ""
    names: dict[str, str] = {}

    @property
    def pids(self) -> dict[ProcAddress, int]:
        """The local processes but the agent: procs, and the client that has started the host."""
        running = {proc.address: proc.pid for proc in self.procs if proc.end is None and proc.pid}
        return {self.root: self.root_pid, **running} if self.root.is_client else running


# to a host agent: clients


class Ping(NamedTuple):
    """A request for a sign of life.

    Client ──▶ its own agent, urgent, at each heartbeat. Answer: None; none in time means that it is
    lost.
    """


class Subscribe(NamedTuple):
    """A client wants the output of its procs on this host.

    Client ──▶ an agent that it started, or did not attach.

    Answers: an `Output` or a `Mark` each, as long as both live; the agent's own `Failure` as its
    last, to the client that started it.
    """


class MarkOutput(NamedTuple):
    """Put a mark behind what the procs of this host have printed by now.

    Client ──▶ agents of ranks that have printed.

    Answer: None, behind the mark, which comes with the output. A host that has ended has nothing to
    show.

    Attributes:
        names: The processes to wait for, if they have printed more than is taken; None for all.
        flush: Wait for files, too.
    """

    number: int
    names: Sequence[str] | None
    flush: bool


class OutputShown(NamedTuple):
    """The client has shown output of a process. Client ──▶ the agent of that.

    Attributes:
        name: The process.
        size: Characters, since it said so last.
    """

    name: str
    size: int


class ShowOutput(NamedTuple):
    """Choose the output of some procs that their client sees from now on.

    Any process ──▶ their host agents.

    Answer: None, when what they had printed before was passed on as it was until then. A host that
    has ended shows nothing.

    Attributes:
        mesh: Id of the proc mesh.
        views: Ranks, also of other hosts, and a function: called with that id and each of their
            outputs, it returns the part to show.
        level: Level of the root logger of these procs, for when they start again; those that run
            are told otherwise.
    """

    mesh: str
    views: Sequence[tuple[Sequence[int], Callable[[str, Any], Any]]]
    level: int


class JoinHosts(NamedTuple):
    """The client is about to attach these hosts. Client ──▶ its own agent.

    Attributes:
        trust: How to prove itself to them.
        knobs: The client's configuration, which is in force from now on.
        names: Of these hosts, for people, ``trainers[0]``; none where the mesh has no name.
    """

    hosts: Sequence[str]
    trust: Trust
    knobs: dict[str, object]
    names: dict[str, str]


class RouteVia(NamedTuple):
    """Reach all other hosts through one. Client ──▶ its own agent."""

    host: str
    trust: Trust


class Attach(NamedTuple):
    """A client will use this host, and wants the output of its procs.

    Client ──▶ agents of other hosts, a standing cast.

    Answers: the agent's identity, then as to `Subscribe`, each numbered in its meta, as outputs are
    repeated when a host in between is lost. A host that has ended, or can't be reached, is not
    attached.

    Attributes:
        knobs: The client's configuration, in force there until another client attaches the host;
            None: the present one stays.
    """

    knobs: dict[str, object] | None


class Detach(NamedTuple):
    """The client does not use these hosts any more. Client ──▶ its own agent. Answer: None."""

    hosts: Sequence[str]


class StopClient(NamedTuple):
    """A client leaves: stop what it has on this host. Client ──▶ agents of other hosts.

    Answer: None, when that is gone, within `grace` seconds. A host that has ended has nothing left
    to stop.
    """

    root: ProcAddress
    reason: str
    grace: float


class ShutDownHost(NamedTuple):
    """Stop everything, then end. Client ──▶ its own agent, or those of hosts that it attached.

    Answer: None, when nothing runs any more, within `grace` seconds and some. The client's own
    agent ends at once, others with `EndHost`, as each passes on what others say. An agent that has
    ended is shut down.
    """

    reason: str
    grace: float


class EndHost(NamedTuple):
    """End, as each host that was to shut down has said so. Client ──▶ those agents."""
