"""The start of the procs of a mesh.

The agents of its hosts are asked; a function may run first; ranks may start again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ... import _seeds, config
from ..._guards.main_guard import Nesting, nest
from ..._namedtuple import NamedTuple
from ...errors import SupervisionError
from ..actors import log
from ..actors.base_cell import BaseCell
from ..actors.context import context
from ..actors.request import SystemCall
from ..calls.future import Future, when_done
from ..calls.pending import Described, PendingCall, operation_of, subscribe
from ..calls.promise import Promise
from ..calls.remote_error import relay_error, supervision_error
from ..client import client
from ..extension import in_every_proc
from ..hub.control import send_record
from ..hub.control_records import CloseGate, OpenGate, RestartProcs, SpawnProcs
from ..hub.spawn_requests import SpawnRequest, Start
from ..shape import Extent, Shape, Slice
from ..supervision.restart import Strategy
from ..wire.address import ProcAddress
from .actor_mesh import ActorMesh
from .bootstrap import Bootstrap
from .owned import OwnedProcs
from .proc_mesh import ProcMesh, Procs
from .shaped import comes_back


def launch(
    procs: Procs,
    extent: Extent,
    starts: list[Start],
    first: Callable[[], Any] | None,
    restart: Strategy | None,
    threads: int | None,
) -> ProcMesh:
    """Start procs that the current actor owns.

    Args:
        starts: One for each rank.
        first: A function that runs on each of them before any actor does.
        restart: What starts them again when they fail.
        threads: With how many each of them computes; None for what the configuration says.
    """
    cell = context()._cell
    log.install()
    group = cell.restart_group(restart) if restart is not None else None
    how = _Launch(
        cell, procs, extent, starts, _working_directory(), first, nest(), restart is not None,
        _seeds.of_mesh(config.value("seed"), cell.record, procs.name) | ({} if threads is None else {"threads": threads}),
    )  # fmt: skip
    addresses = [procs.address(rank) for rank in range(extent.nelements)]
    _ensure_agents(cell, addresses)
    owned = OwnedProcs(cell, procs.uid, procs.name, addresses, extent, group, how.start_again)
    cell.own(owned)
    started = how.start(SpawnProcs, starts)
    mesh = ProcMesh(procs, Shape.from_extent(extent), owned, started)
    if first is not None:
        mesh._ready = _run_first(mesh, first, started)
    return mesh


class _Launch(NamedTuple):
    """Starts the procs of a mesh: at first, and again."""

    cell: BaseCell
    procs: Procs
    extent: Extent
    starts: list[Start]
    cwd: str
    first: Callable[[], Any] | None
    nesting: Nesting
    restarts: bool
    settings: dict[str, Any]

    def start(self, kind: type[SpawnProcs | RestartProcs], starts: Sequence[Start]) -> Future[bool]:
        """Ask the agents; done when the procs run.

        Hosts that start the same get one message, however many they are.
        """
        procs = self.procs
        here: dict[int, list[Start]] = {}  # by position of the host in the mesh
        for start in starts:
            position, index = divmod(start.rank, procs.per_host)
            here.setdefault(position, []).append(start._replace(rank=index))
        alike: dict[object, list[int]] = {}
        for position, local in here.items():
            alike.setdefault(tuple(start.key for start in local), []).append(position)
        agents = {position: procs.address(position * procs.per_host).agent for position in here}
        started = SystemCall(f"{procs.name}: {len(starts)} procs to start", agents, True)
        for positions in alike.values():
            to = [agents[position] for position in positions]
            record = kind(self._request(to[0].host, here[positions[0]]))
            send_record(self.cell.hub, to, record, started, self.cell.uid, ranks=positions)
        return started.future

    def _request(self, host: str, starts: Sequence[Start]) -> SpawnRequest:
        cell, procs = self.cell, self.procs
        environ = dict(os.environ) if host in cell.hub.hosts else None
        return SpawnRequest(
            procs.uid, procs.name, dict(self.extent), procs.per_host, tuple(starts), cell.address, cell.hub.root,
            list(sys.path), self.cwd, environ, _preload(), config.exported() | self.settings, self.nesting,
            self.restarts, log.settings(),
        )  # fmt: skip

    def start_again(self, incarnations: dict[int, int]) -> list[Future[bool]]:
        """Start the next incarnation of some ranks, by rank.

        They are ready when all these futures are done.
        """
        starts = [
            self.starts[rank]._replace(incarnation=number) for rank, number in incarnations.items()
        ]
        started = self.start(RestartProcs, starts)
        if self.first is None:
            return [started]
        meshes = [
            ProcMesh(self.procs, Shape([], Slice(offset=rank, sizes=[], strides=[])))
            for rank in incarnations
        ]
        return [_run_first(mesh, self.first, started) for mesh in meshes]


def _run_first(mesh: ProcMesh, first: Callable[[], Any], started: Future[bool]) -> Future[bool]:
    """Run a function on every proc, and hold back all other actors until it has returned on all.

    A proc that dies meanwhile and starts again runs it by itself: the others don't wait for that.
    """
    cell = context()._cell
    gates = dict(enumerate(mesh._addresses()))
    send_record(cell.hub, list(gates.values()), CloseGate())
    bootstrap = mesh._spawn(mesh.name, Bootstrap, (), {}, gated=False)
    asked: list[Any] = list(bootstrap.bootstrap.stream(first))
    ready: Promise[bool] = Promise(_Bootstrapping(mesh.name, operation_of(asked[0])))
    missing, made, opened = len(asked), False, False

    def ended(ran: Any) -> None:  # not on the I/O thread: what it raised is unpickled
        nonlocal missing, made, opened
        missing -= 1
        error = ran.exception()
        if error is None:
            made = ran.get() or made
        elif isinstance(error, SupervisionError) and comes_back(error.failure.event):
            del gates[ran.rank.rank]
            error = None
        if not opened and (error is not None or not missing):
            opened = True
            open_gates(error, ran)

    def open_gates(error: BaseException | None, ran: Future[bool]) -> None:
        record = OpenGate(None if error is None else relay_error(error))
        send_record(cell.hub, list(gates.values()), record)
        if error is None and made:
            _keep(cell, mesh, bootstrap)
        else:
            bootstrap.stop()
        subscribe(
            started,
            lambda: ready.resolve(None, lambda _: started.get() and (error is None or ran.get())),
        )

    for ran in asked:
        when_done(ran, ended)
    return ready.future


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(
            "the working directory of this process has been deleted, and procs would start in it:"
            " os.chdir to another one before spawn_procs, or start the program in another one"
        ) from None


def _keep(cell: BaseCell, procs: ProcMesh, bootstrap: ActorMesh[Any]) -> None:
    """Keep what the function has made, and the actor that owns it.

    Its failures become those of the procs' owner.

    Where a strategy starts the procs again, that also runs the function again: there the actor
    has no owner.
    """
    owned, kept = cell.ownership.get(procs._procs.uid), bootstrap._owned
    assert kept is not None
    if owned is None or owned.group is not None:  # the procs were stopped meanwhile; or see above
        return
    with suppress(RuntimeError):  # the owner is ending, and stops the procs
        cell.own(kept)
    for address in bootstrap._procs:
        failure = cell.hub.fate(address, bootstrap._uid)
        if failure is not None:  # before it was owned
            cell.rank_failed(failure)


class _Bootstrapping(Described):
    """The operation of a future that is done after a call: its readers wait for that call."""

    __slots__ = ("_call",)

    def __init__(self, name: str, call: Any) -> None:
        super().__init__(f"{name}: the bootstrap function")
        self._call = call

    def awaited(self) -> PendingCall | None:
        pending: PendingCall = self._call.unanswered()
        return pending if pending.silent else None


def _ensure_agents(cell: BaseCell, addresses: Sequence[ProcAddress]) -> None:
    """Have the agents of these processes there, this machine's included.

    The client starts that one on first use; a restart never does, when it may be gone.

    Raises:
        SupervisionError: There is no way to one of the others.
    """
    hub = cell.hub
    for agent in dict.fromkeys(address.agent for address in addresses):
        failure = hub.neighbours.no_way(agent)
        if failure is not None:
            raise supervision_error(failure, "spawn_procs()")
        if hub.address == hub.root:
            if agent == hub.address.agent:
                client.client().ensure_agent()
            else:
                client.client().follow(agent)


def _preload() -> tuple[str, ...]:
    """Return the modules that the spawner imports once for all procs.

    Those that say so themselves, configured ones, and torch if the caller uses it.
    """
    used = {"torch"} & sys.modules.keys()
    return tuple(dict.fromkeys([*in_every_proc, *config.value("preload"), *used]))
