"""Meshes of hosts, and spawning procs on them."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ... import config
from ..._guards.main_guard import refuse_imports
from ..._words import named
from .. import extension
from ..actors.context import context
from ..calls.future import Future
from ..calls.promise import completed
from ..client import client
from ..hub.spawn_requests import Start
from ..processes.specs import UNNAMED
from ..shape import Extent, Point, Region, Shape, Slice
from ..supervision.restart import Strategy
from ..wire.address import random_name
from . import mock, proc_mesh
from .bootstrap import (
    BootstrapCommand,
    CommandChoice,
    check_binding,
    choose_command,
    default_bootstrap_cmd,
    python_bootstrap_cmd,
)
from .launch import launch
from .proc_mesh import ProcMesh, Procs
from .shaped import DrawnMesh, names_of

if TYPE_CHECKING:
    from .attachment import Attachment

_spawn_callbacks: list[Callable[[ProcMesh], object]] = []


class HostMesh(DrawnMesh):
    """Machines that can run procs.

    `this_host()` gives the machine of the calling actor, `attach_to_workers` others.

    Args:
        hosts: Gives the names of the hosts; it may have to wait for them.
        shape: Picks from them.
        python: Interpreter for the procs; empty for the current one.
        attachment: How they were attached, where that was here.
        name: For people.
        owned: They may be let go by way of this mesh; it is neither a slice nor was it received.
    """

    def __init__(
        self,
        hosts: Callable[[], tuple[str, ...]],
        shape: Shape,
        python: str = "",
        attachment: Attachment | None = None,
        name: str | None = None,
        owned: bool = False,
    ) -> None:
        self._find_hosts = hosts
        self._shape = shape
        self._python = python
        self._attachment = attachment
        self._name = name
        self._owned = owned

    @property
    def _hosts(self) -> tuple[str, ...]:
        return self._find_hosts()

    def _new_with_shape(self, shape: Shape) -> HostMesh:
        return self._reference(self._find_hosts, shape)

    def _new_with_elements(self, positions: Sequence[int], extent: Extent) -> HostMesh:
        ranks = self._shape.ranks()

        def picked() -> tuple[str, ...]:
            hosts = self._hosts
            return tuple(hosts[ranks[position]] for position in positions)

        return self._reference(picked, Shape.from_extent(extent))

    def _reference(self, hosts: Callable[[], tuple[str, ...]], shape: Shape) -> HostMesh:
        return HostMesh(hosts, shape, self._python, self._attachment, self._name)

    @property
    def initialized(self) -> Future[bool]:
        """A future that is True once the hosts are attached.

        It raises which host can't be reached, and why.

        `mesh_attach_config_timeout` bounds the wait.
        """
        return self._attachment.initialized if self._attachment is not None else completed(True)

    @property
    def region(self) -> Region:
        return self._shape.region

    @property
    def stream_logs(self) -> bool:
        return False

    @property
    def is_fake_in_process(self) -> bool:
        return False

    def with_python_executable(self, path: str) -> HostMesh:
        """Return a handle on the same hosts, with another interpreter for their procs.

        So do procs that are started by those.

        Args:
            path: Path of the interpreter, on those hosts.

        Raises:
            ValueError: There is no such executable, where the hosts are this machine. On others it
                shows when procs are spawned.
        """
        self._check_usable()
        import shutil  # brings the compression libraries; every proc imports this module, few call this

        if self._attachment is None and shutil.which(os.fspath(path)) is None:
            raise ValueError(f"{path!r} is not an executable program on this machine")
        changed = copy.copy(self)
        changed._python = os.fspath(path)
        return changed

    def spawn_procs(
        self,
        per_host: Mapping[str, int] | None = None,
        bootstrap: Callable[[], Any] | None = None,
        name: str | None = None,
        proc_bind: Sequence[Mapping[str, str]] | None = None,
        bootstrap_command: CommandChoice = None,
        restart: Strategy | None = None,
        threads: int | None = None,
        **unknown: NoReturn,
    ) -> ProcMesh:
        """Start processes on every host; returns at once.

        Args:
            per_host: Labels and sizes of the procs of one host, for example ``{"gpus": 8}``; None
                for one proc.
            bootstrap: A function without arguments, sync or async, that runs on every proc before
                any actor does.
            name: For people; need not be unique. None: that of the first actors that are spawned on
                them.
            proc_bind: For each proc of a host a mapping with any of ``cpunodebind``, ``membind``,
                ``physcpubind`` (needs numactl) or ``cpus`` (``"0,2-4"``).
            bootstrap_command: How to start the procs, or a function of a proc's point in the new
                mesh.
            restart: A strategy, such as `OneForOne`, which starts failed procs again, with the
                actors that their owner spawned on them. None, the default: nothing starts again.
            threads: With how many torch and OpenMP compute in each proc. None: as
                ``configure(threads=...)`` says, else the host's cores divided by `per_host`.
            **unknown: Refused.

        Returns:
            A mesh of the dimensions of the hosts, then those of `per_host`.

        Raises:
            ValueError: A label stands twice, a size or `threads` is below 1, or `proc_bind` has the
                wrong length.
            OverflowError: A size is negative.
            TypeError: An argument is of another kind, or there is no such argument.
            RuntimeError: It is called by the top level of a module that a proc imports; or procs
                own procs, one above the other, up to `proc_nesting_limit`.
        """
        refuse_imports("spawn_procs")
        self._check_usable()
        if unknown:
            raise _unknown_arguments(unknown)
        extent = self._check_extent(per_host)
        size = extent.nelements // len(self)
        bindings = check_binding(proc_bind, size)
        if bootstrap is not None and not callable(bootstrap):
            raise TypeError(f"bootstrap must be a function without arguments, got {bootstrap!r}")
        if restart is not None and not isinstance(restart, Strategy):
            raise TypeError(
                f"restart takes a strategy of supervision, such as OneForOne(), got {restart!r}"
            )
        if threads is not None:
            from ..._arguments import whole  # few programs give any

            whole(threads, "threads")
        names = self._hosts
        hosts = tuple(names[rank] for rank in self._shape.ranks())
        procs = Procs(random_name(60), _check_name(name), hosts, size, self._python)
        default = python_bootstrap_cmd(self._python) if self._python else default_bootstrap_cmd()
        starts = []
        for rank in range(extent.nelements):
            command = choose_command(bootstrap_command, Point(rank, extent), default)
            starts.append(_start(rank, command, bindings[rank % size]))
        mesh = launch(procs, extent, starts, _first_function(bootstrap), restart, threads)
        if self._attachment is not None and mesh._owned is not None:
            self._attachment.note_spawned(mesh._owned)
        for callback in _spawn_callbacks:
            callback(mesh)
        return mesh

    def _check_extent(self, per_host: Mapping[str, int] | None) -> Extent:
        if per_host is not None and not isinstance(per_host, Mapping):
            size = per_host if isinstance(per_host, int) else 8
            raise TypeError(
                "per_host names each dimension of the processes of one host, spawn_procs({'gpus':"
                f" {size}}}); got {per_host!r}"
            )
        per_host = dict(per_host or {})
        for label, size in per_host.items():
            if isinstance(size, int) and size < 1:
                kind = OverflowError if size < 0 else ValueError
                raise kind(f"per_host[{label!r}] must be at least 1, got {size}")
        overlap = [label for label in per_host if label in self._labels]
        if overlap:
            raise ValueError(
                f"per_host labels {overlap} overlap with host labels {self._labels}; rename one of"
                f" them, for example hosts.rename({overlap[0]}=...)"
            )
        return Extent([*self._labels, *per_host], [*self.sizes.values(), *per_host.values()])

    def _check_usable(self) -> None:
        if self._attachment is not None and self._attachment.ended is not None:
            raise RuntimeError(
                f"HostMesh has already been {self._attachment.ended}: {self!r}; attach the hosts"
                " again"
            )

    def stacks(self, native: bool = False) -> Future[Any]:
        """Ask what every thread of this program's processes on these hosts runs right now.

        For programs that hang.

        It works while actors hold the GIL, are stopped, or sit in C. ``monarch stacks`` shows the
        same at another terminal.

        Args:
            native: With the functions of C libraries, by py-spy, where that is installed and
                allowed.

        Returns:
            A future of `Stacks`, within a few seconds: a text with equal stacks
            together; `procs`, `classes`.
        """
        _ensure_agent()
        found: Future[Any] = extension.stacks(self._hosts, None, None, native)
        return found

    def shutdown(self) -> Future[None]:
        """End the workers of these hosts and all procs there, also those of other programs.

        Acts when called.

        Returns:
            A future that is done when they have ended: within 10 s for ``__cleanup__``, and a few
            more.

        Raises:
            RuntimeError: The mesh is a slice, was received in a message, or is `this_host()`: only
                the program that attached hosts shuts them down. Or it has been shut down or stopped
                before.
        """
        return self._let_go("shut down")

    def stop(self) -> Future[None]:
        """Stop the procs that were spawned on this mesh, and detach the hosts.

        The workers go on, and can be attached again. Acts when called.

        Returns:
            A future that is done when the procs have ended.

        Raises:
            RuntimeError: As for `shutdown`.
        """
        return self._let_go("stopped")

    def _let_go(self, how: str) -> Future[None]:
        if self._attachment is None or not self._owned or self._attachment.inherited:
            raise RuntimeError(
                f"cannot {'stop' if how == 'stopped' else 'shut down'} `HostMesh` that is a"
                f" reference instead of owned: {self!r} is this machine, a slice, or was received;"
                " use the mesh that attach_to_workers returned"
            )
        self._check_usable()
        return self._attachment.let_go(how)

    def to_table(self) -> str:
        """Draw the hosts as a grid, for people; see `ProcMesh.to_table`.

        Waits for addresses that are not known yet.
        """
        return self._draw(self._cells())

    def _cells(self) -> Callable[[int], str]:
        hosts, ranks = self._hosts, self._shape.ranks()
        names = names_of(hosts)
        return lambda rank: names[hosts[ranks[rank]]]

    def _repr_html_(self) -> str | None:
        if self._attachment is not None and not self._attachment.known:
            return None
        return super()._repr_html_()

    async def __aenter__(self) -> HostMesh:
        self._check_usable()
        return self

    async def __aexit__(self, *exc: object) -> None:
        attached = self._attachment
        if attached is None or (attached.ended is None and not attached.inherited):
            await self.shutdown()

    async def sync_workspace(
        self, workspace: object, conda: bool = False, auto_reload: bool = False
    ) -> Any:
        """Bring folders of this machine to these hosts, as they are now.

        Only changes are sent, and they take effect as a whole.

        Procs that are spawned there afterwards import from it, in place of folders that only this
        machine has; ``WORKSPACE_DIR`` in their environment names it.

        Args:
            workspace: A folder; folders; a dict of folder to path in the workspace; or a
                `Workspace`.
            conda: Bring the active conda environment, too, or that of the workspace; this program's
                procs start in it then.
            auto_reload: Have this program's procs there reload modules that have changed.

        Returns:
            A `SyncResult`: the files sent and left out, the modules reloaded; its text is a summary
            of a few lines.

        Raises:
            OSError: A file of the workspace can't be read.
            RuntimeError: No conda environment is active; or, an `EnvironmentFailed`, a host can't
                make it.
            SyncError: A host has failed; the others are done.
        """
        self._check_usable()
        await self.initialized
        _ensure_agent()
        names = self._hosts
        hosts = [names[rank] for rank in self._shape.ranks()]
        return await extension.sync(hosts, workspace, conda, auto_reload)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostMesh):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[tuple[str, ...], Shape, str]:
        return self._hosts, self._shape, self._python

    if not TYPE_CHECKING:  # which is to go on telling of names that do not exist

        def __getattr__(self, name: str) -> Any:
            if name == "spawn":
                raise AttributeError(
                    "hosts run processes, and processes run actors: hosts.spawn_procs({'gpus':"
                    " 8}).spawn('name', Class), or this_proc().spawn(...) for an actor in this"
                    " process"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        name = f" {self._name!r}" if self._name else ""
        return f"<HostMesh{name} {self.extent} of {len(self)} host{'s' if len(self) > 1 else ''}>"

    def __reduce__(self) -> Any:
        return _host_mesh, self._key()


def _ensure_agent() -> None:
    hub = context()._cell.hub
    if hub.address == hub.root:
        client.client().ensure_agent()


def _host_mesh(hosts: tuple[str, ...], shape: Shape, python: str) -> HostMesh:
    """A reference to hosts."""
    return HostMesh(lambda: hosts, shape, python)


def this_host() -> HostMesh:
    """The machine that runs the calling actor, as a mesh of one element without dimensions.

    Raises:
        RuntimeError: It is called by the top level of a module that a proc imports.
    """
    refuse_imports("this_host()")
    return proc_mesh.this_proc().host_mesh


def host_mesh_of(procs: ProcMesh) -> HostMesh:
    hosts = tuple(dict.fromkeys(address.host for address in procs._addresses()))
    shape = (
        Shape.unity() if len(hosts) == 1 else Shape(["hosts"], Slice.new_row_major([len(hosts)]))
    )
    return _host_mesh(hosts, shape, procs._procs.python)


extension.host_mesh.fill(host_mesh_of)


def _check_name(name: str | None) -> str:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"the name of a proc mesh is a string, got {name!r}")
    return UNNAMED if name is None else named(name)


def _unknown_arguments(unknown: Mapping[str, object]) -> TypeError:
    if all(isinstance(value, int) for value in unknown.values()):
        return TypeError(
            f"spawn_procs takes the number of processes as a dict: spawn_procs({unknown})"
        )
    import inspect

    _, *known, _ = inspect.signature(HostMesh.spawn_procs).parameters
    return TypeError(
        f"spawn_procs has no argument {', '.join(unknown)}; its arguments are {', '.join(known)}"
    )


def _start(rank: int, command: BootstrapCommand, binding: Mapping[str, str]) -> Start:
    by_exec = not command.is_default or config.value("proc_spawn_method") == "exec"
    nodes = tuple((key, value) for key, value in binding.items() if key != "cpus")
    return Start(
        rank, command.as_command() if by_exec else None, command.env, command.inherit_env,
        binding.get("cpus", ""), nodes,
    )  # fmt: skip


def _first_function(bootstrap: Callable[[], Any] | None) -> Callable[[], Any] | None:
    """Return the first function of each proc: the mocks in force here, then the user's function."""
    patches = mock.active()
    return functools.partial(_install_then, patches, bootstrap) if patches else bootstrap


def _install_then(patches: list[tuple[type, type]], bootstrap: Callable[[], Any] | None) -> Any:
    mock.install(patches)
    return bootstrap() if bootstrap is not None else None


def register_proc_mesh_spawn_callback(callback: Callable[[ProcMesh], object]) -> None:
    """Call ``callback(proc_mesh)`` for each new proc mesh, before `spawn_procs` returns."""
    _spawn_callbacks.append(callback)


def unregister_proc_mesh_spawn_callback(callback: Callable[[ProcMesh], object]) -> None:
    _spawn_callbacks.remove(callback)
