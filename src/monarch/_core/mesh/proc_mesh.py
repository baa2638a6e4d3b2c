"""Meshes of processes, and spawning actors on them."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..._namedtuple import NamedTuple
from ..._unsendable import explain_arguments
from ..._words import named
from .. import extension
from ..actors import sampling
from ..actors.actor import Actor
from ..actors.context import context, current_hub
from ..actors.endpoint import describe_class
from ..actors.proc_service import spawn_record
from ..actors.request import Gather, SpawnCall
from ..calls.exception_pickle import can_be_sent
from ..calls.future import Future
from ..calls.promise import completed
from ..calls.remote_error import supervision_error
from ..client.client import client
from ..extension import lend
from ..hub.control import send_record
from ..hub.control_records import GetStatistics
from ..hub.spawn_requests import CreatorInstance, SpawnSpec
from ..hub.statistics import ProcStatistics
from ..shape import Extent, Point, Shape, ValueMesh
from ..wire import pickling, reducers
from ..wire.address import SYSTEM, ProcAddress, random_uid
from . import mock
from .actor_mesh import ActorMesh, check_names
from .owned import OwnedActors, OwnedProcs
from .shaped import DrawnMesh, ExpendableMesh, names_of

if TYPE_CHECKING:
    from .host_mesh import HostMesh

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)


class Procs(NamedTuple):
    """The procs of one spawn, wherever they run.

    Attributes:
        uid: Its id, part of every proc's address.
        name: Its name, for people.
        hosts: The hosts, in order.
        per_host: Procs on each.
        python: Interpreter that procs spawned from these procs use, too; empty for their own.
        picked: Where they are only some of those, in no regular steps: their ranks among all.
    """

    uid: str
    name: str
    hosts: tuple[str, ...]
    per_host: int
    python: str = ""
    picked: tuple[int, ...] = ()

    def address(self, rank: int) -> ProcAddress:
        if self.picked:
            rank = self.picked[rank]
        return ProcAddress(self.hosts[rank // self.per_host], f"{self.uid}.{rank}")


class ProcMesh(ExpendableMesh, DrawnMesh):
    """Processes that run actors. Made by ``host.spawn_procs(...)``; slices of it are references."""

    def __init__(
        self,
        procs: Procs,
        shape: Shape,
        owned: OwnedProcs | None = None,
        ready: Future[bool] | None = None,
    ) -> None:
        self._procs = procs
        self._shape = shape
        self._owned = owned
        if owned is not None:
            owned.handle = weakref.ref(self)
        self._ready = ready

    def _new_with_shape(self, shape: Shape) -> ProcMesh:
        return ProcMesh(self._procs, shape, None, self._ready)

    def _new_with_elements(self, positions: Sequence[int], extent: Extent) -> ProcMesh:
        ranks = self._shape.ranks()
        among_all = self._procs.picked or range(len(self._procs.hosts) * self._procs.per_host)
        picked = tuple(among_all[ranks[position]] for position in positions)
        return ProcMesh(
            self._procs._replace(picked=picked), Shape.from_extent(extent), None, self._ready
        )

    @property
    def name(self) -> str:
        """The name that the mesh was spawned with."""
        return self._procs.name

    @property
    def initialized(self) -> Future[bool]:
        """A future that is True once every proc runs and the bootstrap function has returned.

        It raises the reason if not.

        ``host_spawn_ready_timeout`` bounds the start of the procs. The bootstrap function has no
        time limit, but ends with its process.
        """
        return self._ready if self._ready is not None else completed(True)

    @property
    def host_mesh(self) -> HostMesh:
        """The hosts that run these procs, one element per host."""
        mesh: HostMesh = extension.host_mesh(self)
        return mesh

    def spawn(self, name: str, Class: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> A:  # noqa: N803
        """Create one actor on every proc; returns at once.

        Args:
            name: For people; need not be unique.
            Class: A subclass of `Actor`.
            *args: Arguments of its constructor, pickled now.
            **kwargs: As `args`.

        Returns:
            The actor mesh, which to type checkers is a `Class`.

        Raises:
            ValueError: `Class` is no actor class, mixes sync and async endpoints, or names an
                endpoint like an attribute of meshes.
            TypeError: The arguments do not fit the constructor.
            RuntimeError: The procs were stopped.
            SupervisionError: They belong to another program, which is gone, or there is no way to
                them from here.
        """
        self._check_not_stopped()
        if not isinstance(name, str):
            raise TypeError(
                f'spawn takes a name first, procs.spawn("counters", Counter, ...); got {name!r}'
            )
        cls = _check_class(Class, args, kwargs)
        self._check_way(name)
        # a mesh, typed as its class
        return self._spawn(named(name), cls, args, kwargs)  # type: ignore[return-value]

    def _spawn(
        self, name: str, cls: type, args: Any, kwargs: Any, gated: bool = True
    ) -> ActorMesh[Any]:
        cell = context()._cell
        uid = random_uid()
        dump = functools.partial(_dump_init, name, cls, args, kwargs)
        init = dump() if lend.guest is None else lend.guest(dump, self._addresses(), uid)
        if isinstance(init, reducers.Loan):  # no other message goes to them yet
            with init as init:
                pass
        extent = self.extent
        procs = cell.ownership.get(self._procs.uid)  # None where another actor owns them
        group = procs.group if procs is not None and gated else None
        is_async = describe_class(cls).is_async
        spec = SpawnSpec(
            uid, name, f"{cls.__module__}.{cls.__qualname__}", cell.address, cell.record, self._reference(), extent,
            restarts=group is not None,
        )  # fmt: skip
        addresses = tuple(self._addresses())
        record = CreatorInstance(name, spec.class_name, Point(0, extent), None, cell.record)

        def path(rank: int) -> str:
            return f"{record.creator}.<{spec.class_name} {name}{Point(rank, extent)!r}>"

        sampling.start(cell.hub)  # who spawns sends, too
        owned = OwnedActors(cell, spec, addresses, path, group, is_async, init)
        if gated:  # the actor that runs the bootstrap function is internal
            cell.own(owned)
        request = SpawnCall(f"{name} to be created", addresses, uid)
        send_record(
            cell.hub, addresses, spawn_record(spec, is_async, init, gated), request, cell.uid
        )
        if gated:
            cell.note_unsettled(uid, addresses)
            cell.note_spawned(addresses)
        shape = Shape.from_extent(extent)
        return ActorMesh(cls, name, uid, addresses, shape, owned, request.future, self)

    def stop(self, reason: str = "stopped by client") -> Future[None]:
        """Stop every actor on these procs, running ``__cleanup__``, and end the processes.

        Acts when called.

        Args:
            reason: Text for those who still call the actors.

        Returns:
            A future that is done when the processes are gone: within ``cleanup_timeout`` plus
            ``process_exit_timeout``, after which they are killed.

        Raises:
            ValueError: The mesh is a slice, or was received in a message; only its owner stops it.
        """
        return self._check_owned().stop(reason)

    def to_table(self, pids: bool = False) -> str:
        """Return the mesh as a drawn grid, for people.

        Two dimensions are rows and columns, more are titled blocks. Each cell has the host
        and the index of the proc on it (``gpu[3]``, as each usually has a GPU). The middle
        of long meshes is left out.

        Args:
            pids: Ask the procs for the numbers of their processes, and show these, too.

        Raises:
            SupervisionError: With `pids`, one of the procs has failed.
        """
        cells = self._cells()
        if not pids:
            return self._draw(cells)
        found = [each.pid for each in self.statistics().get().values()]
        return self._draw(lambda rank: f"{cells(rank)} · {found[rank]}")

    def _cells(self) -> Callable[[int], str]:
        procs, ranks = self._procs, self._shape.ranks()
        names = names_of(procs.hosts)

        def cell(rank: int) -> str:
            at = procs.picked[ranks[rank]] if procs.picked else ranks[rank]
            host, place = divmod(at, procs.per_host)
            return f"{names[procs.hosts[host]]} · gpu[{place}]"

        return cell

    def statistics(self) -> Future[ValueMesh[ProcStatistics]]:
        """Ask each process for its counters: messages, bytes, system calls, queues.

        ``this_proc().statistics()`` asks the calling process.
        """
        cell = context()._cell
        addresses = self._addresses()
        request = Gather(f"the statistics of {self.name}", SYSTEM, addresses, self.extent)
        send_record(cell.hub, addresses, GetStatistics(), request, cell.uid)
        return request.future

    def stacks(self, native: bool = False) -> Future[Any]:
        """Return a future of what every thread runs right now; see `HostMesh.stacks`."""
        addresses = self._addresses()
        hosts = list(dict.fromkeys(address.host for address in addresses))
        ranks = [address.rank for address in addresses]
        found: Future[Any] = extension.stacks(hosts, self._procs.uid, ranks, native)
        return found

    def activate(self) -> AbstractContextManager[Any]:
        """Make torch operations distributed over this mesh: ``with procs.activate():``.

        In this thread or task only.

        The first activation, of the whole mesh or of any slice, starts a tensor engine on all procs
        of the mesh.
        """
        activation: AbstractContextManager[Any] = self._device_mesh.activate()
        return activation

    @property
    def _device_mesh(self) -> Any:
        """This mesh as tensors see it."""
        return extension.device_mesh(self)

    def rank_tensor(self, dims: str | Iterable[str]) -> Any:
        """Return each rank's index along `dims` as a distributed tensor; see `DeviceMesh.rank`."""
        return self._device_mesh.rank(dims)

    def rank_tensors(self) -> dict[str, Any]:
        """Return the `rank_tensor` of each dimension, by its label."""
        ranks: dict[str, Any] = self._device_mesh.ranks
        return ranks

    def logging_option(
        self, stream_to_client: bool = True, aggregate_window_sec: float | None = None, level: int = 20, *,
        ranks: Any = None, match: str | re.Pattern[str] | None = None,
    ) -> Future[None]:  # fmt: skip
        """Set what of the output of these procs the client shows, and how.

        Each call sets all options anew; those of a rank survive its restarts. Files of logs are
        written in any case.

        Args:
            stream_to_client: Show the output at all. Without any call, all of it is shown, as it
                comes.
            aggregate_window_sec: Seconds over which lines are collected that differ in numbers at
                most. The first is shown at once, the others when the window ends, as one line.
                Errors and tracebacks are always shown at once. None shows each line at once.
            level: Level of `logging` from which on records are made and shown, 0 to 255; that of
                the root logger of the procs.
            ranks: Show these ranks only: a rank, a `Point`, a sequence of them, a Python slice,
                what `slice` takes as keywords, ``{"gpus": slice(0, 4)}``, or a text, ``"0-3,8"``,
                ``"hosts=1,gpus=0:4"``. Others are silent.
            match: Show only lines in which this regular expression is found.

        Returns:
            A future that is done when the options are in force: earlier lines are shown under the
            former options, later ones under these.

        Raises:
            RuntimeError: A window without streaming.
            ValueError: A level outside 0..255, a window that is no number of seconds, or no regular
                expression.
            IndexError: A rank that the mesh does not have.
            TypeError: Ranks that are none.
        """
        done: Future[None] = extension.log_options(
            self, stream_to_client, aggregate_window_sec, level, ranks, match
        )
        return done

    def flush_logs(self) -> Future[None]:
        """Show all that these procs have printed and logged by now, and write it to files.

        Returns:
            A future that is done then. Where the output of this program is not read, that may be
            never: give `get` a time.

        Raises:
            RuntimeError: This is not the client, which shows the output.
        """
        return flush_logs({address.agent for address in self._addresses()})

    def sync_workspace(self, *args: object, **kwargs: object) -> None:
        """Raise NotImplementedError: hosts have workspaces, as the procs of one share its files."""
        raise NotImplementedError(
            "use HostMesh.sync_workspace: processes of a host share its files"
        )

    def _addresses(self) -> list[ProcAddress]:
        return [self._procs.address(rank) for rank in self._shape.ranks()]

    def _reference(self) -> ProcMesh:
        return ProcMesh(self._procs, self._shape)

    def _check_owned(self) -> OwnedProcs:
        if self._owned is None:
            raise ValueError(
                f"ProcMesh is not owned; must be stopped by an owner: {self!r} is a reference"
            )
        return self._owned

    def _check_not_stopped(self) -> None:
        if self._owned is not None and self._owned.stopping is not None:
            raise RuntimeError(f"`ProcMesh` has already been stopped: {self!r}")

    def _check_strided(self) -> None:
        """Refuse procs that were picked by a list.

        The ranks of their shape are not those of the whole mesh.
        """
        if self._procs.picked:
            raise ValueError(
                f"tensors live on ranks in regular steps, and {self!r} was picked: slice with"
                " start, stop and step"
            )

    def _check_way(self, name: str) -> None:
        """Procs of another program may be gone, or out of reach, before they were sent anything."""
        if self._owned is not None:
            return
        neighbours = current_hub().neighbours
        for agent in {address.agent for address in self._addresses()}:
            failure = neighbours.no_way(agent)
            if failure is not None:
                raise supervision_error(failure, f"spawn({name!r}, ...) on {self!r}")

    def __enter__(self) -> ProcMesh:
        self._check_owned()
        self._check_not_stopped()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owned is not None:  # else this is a child that was forked within the block
            self.stop().get()

    async def __aenter__(self) -> ProcMesh:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        if self._owned is not None:
            await self.stop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcMesh):
            return NotImplemented
        return self._procs == other._procs and self._shape == other._shape

    def __hash__(self) -> int:
        return hash((self._procs, self._shape))

    def __repr__(self) -> str:
        return f"<ProcMesh {self.name!r} {self.extent}>"

    def __reduce__(self) -> Any:
        return ProcMesh, (self._procs, self._shape)


def _check_class(cls: Any, args: Any, kwargs: Any) -> type:
    cls = getattr(cls, "__origin__", cls)  # the class of a generic one, `Store[int]`
    if isinstance(cls, type):
        cls = mock.resolve(cls)
    if not isinstance(cls, type) or not issubclass(cls, Actor):
        raise ValueError(f"{cls!r} must subclass Actor to spawn it")
    check_names(cls)
    describe_class(cls).check_init(args, kwargs)
    return cls


def _dump_init(name: str, cls: type, args: Any, kwargs: Any) -> reducers.Dumped:
    try:
        return pickling.dumps((cls, args, kwargs))
    except Exception as error:
        explain_arguments(
            error, f"spawn({name!r}, {cls.__qualname__}, ...)", args, kwargs, can_be_sent, cls
        )
        raise


def flush_logs(agents: Collection[ProcAddress] | None = None) -> Future[None]:
    """Show all that was printed on these hosts, or on all, by now, and write it to files.

    Returns a future that is done then.

    Raises:
        RuntimeError: This is not the client, which shows the output.
    """
    hub = current_hub()
    if hub.address != hub.root:
        raise RuntimeError("flush_logs() is for the client, which shows the output")
    running = client()
    return running.pending_output.flush(running.agents if agents is None else list(agents))


def client_proc_mesh(address: ProcAddress) -> ProcMesh:
    """The zero-dimensional proc mesh of a client process."""
    uid, _, _ = address.proc.partition(".")
    return ProcMesh(Procs(uid, "client", (address.host,), 1), Shape.unity())


extension.client_mesh.fill(client_proc_mesh)


def this_proc() -> ProcMesh:
    """The proc of the calling actor, as a mesh of one element."""
    proc: ProcMesh = context().actor_instance.proc
    return proc
