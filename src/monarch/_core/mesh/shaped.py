"""Meshes with a `Shape` over the ranks they were spawned with as geometry.

Those of hosts and of procs draw themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ...errors import SupervisionError
from .. import extension
from ..actors.context import context, current_hub
from ..actors.request import Gather, StopCall
from ..calls.future import Future, when_done
from ..calls.promise import Promise
from ..hub.control import send_record
from ..hub.control_records import GetStatistics, KillProcs
from ..shape import MeshTrait, Shape, Slice
from ..supervision.failure import UNSTARTED, Failure
from ..wire.address import SYSTEM, ProcAddress, host_labels


class ShapedMesh(MeshTrait):
    """Base of host, proc and actor meshes; subclasses set `_shape` and define `_new_with_shape`."""

    _shape: Shape

    @property
    def _ndslice(self) -> Slice:
        return self._shape.ndslice

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(self._shape.labels)

    def __getitem__(self, index: object) -> NoReturn:
        # to iterate over a mesh is to ask for its element 0 first
        labels = self._labels
        if not labels:
            raise TypeError(f"{self!r} is one element, not a sequence: use it as it is")
        one = ", ".join(
            f"{label}={index!r}" if label == labels[-1] else f"{label}=0" for label in labels
        )
        raise TypeError(
            f"{self!r} is not a sequence. A part of it is mesh.slice({one}); one call to the mesh"
            " reaches all ranks, and `for point, value in mesh.endpoint.call().get()` goes through"
            " their answers"
        )


class ExpendableMesh(ShapedMesh):
    """Base of proc and actor meshes: meshes with processes that may be killed.

    Subclasses say which these are.
    """

    def _addresses(self) -> Sequence[ProcAddress]:
        """The processes, in the order of the ranks."""
        raise NotImplementedError

    def kill(self, reason: str = "its program asked for it") -> Future[None]:
        """Kill the processes of these ranks at once, with all actors that run there.

        For those that hang. To their owner it is a failure like any other: `__supervise__`
        is told, a restart strategy starts them again. Slices and references may kill, too.

        Args:
            reason: Text for reports, and for callers of the actors.

        Returns:
            A future that is done when the processes are gone.

        Raises:
            RuntimeError: They run in the process of a client, by `this_proc()`.
        """
        addresses = self._addresses()
        if any(address.is_client for address in addresses):
            raise RuntimeError(
                f"{self!r} runs in the process of a program, which only that ends: os._exit(),"
                " sys.exit()"
            )
        cell = context()._cell
        here: dict[tuple[ProcAddress, str], list[int]] = {}
        for address in addresses:
            here.setdefault((address.agent, address.mesh), []).append(address.rank)
        request = StopCall(f"{self!r}.kill()", [agent for agent, _ in here])
        for index, ((agent, mesh), ranks) in enumerate(here.items()):
            send_record(
                cell.hub, agent, KillProcs(mesh, ranks, reason), request, cell.uid, ranks=[index]
            )
        return request.future

    def restart(self, reason: str = "its program asked for a restart") -> Future[None]:
        """Kill the processes, and have their strategy start them again: one restart each.

        The strategy is that of ``spawn_procs(restart=...)``.

        Args:
            reason: Text for reports, and for callers of the actors.

        Returns:
            A future that is done when the processes run again. It raises SupervisionError where the
            strategy has given up.

        Raises:
            RuntimeError: The procs have no strategy, or the calling actor does not own them.
        """
        cell, addresses = context()._cell, self._addresses()
        for mesh in {address.mesh for address in addresses}:
            owned = cell.ownership.get(mesh)
            if owned is None or owned.group is None:
                raise RuntimeError(
                    f"{self!r} cannot be restarted: only who called spawn_procs(restart=...), with"
                    " a strategy of supervision, can; kill() ends a process for good"
                )
        back: Promise[None] = Promise(f"{self!r}.restart()")

        # messages to processes that are away wait for them
        def ask(killed: Future[Any]) -> None:
            request = Gather(f"{self!r}.restart()", SYSTEM, addresses, self.extent)
            send_record(cell.hub, addresses, GetStatistics(), request, cell.uid)
            when_done(request.future, answered)

        def answered(asked: Future[Any]) -> None:
            error = asked.exception()
            if error is None:
                back.resolve(None)
            elif isinstance(error, SupervisionError) and comes_back(error.failure.event):
                # ended once more meanwhile; what ends this is that it is up, or that its strategy
                # gives up
                ask(asked)
            else:
                back.reject(error)

        when_done(self.__kill(reason), ask)
        return back.future

    __kill = kill  # an actor mesh may show an endpoint of that name


def comes_back(failure: Failure) -> bool:
    """Return whether the owner of this process was told of its end and starts it again."""
    return failure.restarts and failure.cause != UNSTARTED


class DrawnMesh(ShapedMesh):
    """Base of host and proc meshes; subclasses say what stands in a cell.

    Actor meshes have no room for more names.
    """

    def _cells(self) -> Callable[[int], str]:
        """Return the function that gives the text at a row-major position."""
        raise NotImplementedError

    def _draw(self, cells: Callable[[int], str], html: bool = False) -> str:
        return extension.draw(repr(self), self.extent, cells, html)

    def _repr_html_(self) -> str | None:
        """Return the HTML that notebooks show."""
        return self._draw(self._cells(), html=True)


def names_of(hosts: Sequence[str]) -> dict[str, str]:
    """Short names of hosts, for people; this machine is called as it calls itself."""
    hub = current_hub()
    here = {host for host in hosts if host == hub.address.host or host in hub.hosts}
    others = [host for host in dict.fromkeys(hosts) if host not in here]
    return {
        **dict.fromkeys(here, os.uname().nodename),
        **dict(zip(others, host_labels(others), strict=True)),
    }
