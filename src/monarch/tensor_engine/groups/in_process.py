"""Groups of ranks that are threads of one process and take turns: those of `monarch.testing`.

The collectives are those of gloo, as between processes. A rank must not wait in one while it has
the turn, as the others could not come. So it notes its part, and gives up its turn until all have
come; the last runs the parts of all. Results depend on nothing but the program.

What ends a wait: the last member that comes, the end of one that is missing, the end of the engine.

`PerProc` holds objects of which a process elsewhere has one, and `refuse` rejects features that
need processes.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch.distributed as dist

from ..._core.plane import current_hub
from .gloo import LOOPBACK, gloo

T = TypeVar("T")

_lock = threading.RLock()  # an engine that is garbage ends on any thread, at any moment


class _Exchange:
    """One collective, or one message, of some members.

    Attributes:
        parties: The members that take part, by index.
        parts: What those that have come do: the name of a method of the backend, and arguments.
    """

    def __init__(self, parties: Sequence[int]) -> None:
        self.parties = parties
        self.parts: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self._over = False
        self._error: Exception | None = None
        self._waiting: list[Any] = []

    def run(self, backends: Callable[[], list[Any]]) -> None:
        """Do what all have come for."""
        error = None
        try:
            members = backends()
            works = [
                getattr(members[index], name)(*args) for index, (name, args) in self.parts.items()
            ]
            for work in works:
                work.wait()
        except Exception as failure:
            error = failure
        self.end(error)

    def end(self, error: Exception | None) -> None:
        """Let all go on."""
        with _lock:
            self._over, self._error = True, error
            waiting, self._waiting = self._waiting, []
        for queue in waiting:
            queue.put(None)

    def wait(self) -> None:
        """Wait until it is over; as that of a `Work` of torch."""
        queue = current_hub().queue()
        with _lock:
            over = self._over
            if not over:
                self._waiting.append(queue)
        if not over:
            queue.get()
        if self._error is not None:
            raise copy.copy(self._error)


class _Group:
    """A group of ranks, as its members share it.

    Attributes:
        members: Their ranks in the engine.
        store: For what they leave each other.
    """

    def __init__(self, members: tuple[int, ...], gone: dict[int, str]) -> None:
        self.members = members
        self.store = dist.HashStore()
        self._gone = gone
        self._open: dict[Any, _Exchange] = {}
        self._backends: list[Any] = []

    def take_part(
        self, key: Any, parties: Sequence[int], index: int, name: str, args: tuple[Any, ...]
    ) -> _Exchange:
        """Note the part of a member; the last one runs them all."""
        with _lock:
            exchange = self._open.setdefault(key, _Exchange(parties))
            exchange.parts[index] = name, args
            complete = len(exchange.parts) == len(parties)
            if complete:
                del self._open[key]
        if complete:
            exchange.run(self._all_backends)
        else:
            self.end_what_waits()
        return exchange

    def end_what_waits(self) -> None:
        """End what can't become complete any more, as a rank that is missing has ended."""
        for key, exchange in list(self._open.items()):
            missing = [
                self.members[index] for index in exchange.parties if index not in exchange.parts
            ]
            why = next((self._gone[rank] for rank in missing if rank in self._gone), None)
            if why is not None:
                self._open.pop(key, None)
                exchange.end(RuntimeError(why))

    def _all_backends(self) -> list[Any]:
        if not self._backends:
            size, store = len(self.members), dist.PrefixStore("gloo", self.store)

            def member(index: int) -> Any:
                device = dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)
                return gloo(store, index, size, device)

            with ThreadPoolExecutor(size) as pool:  # each of them waits for the others
                self._backends = list(pool.map(member, range(size)))
        return self._backends


class Place:
    """A member of a group, with the methods of a backend of torch that the engine uses.

    Args:
        group: The group.
        index: Which of its members.
    """

    def __init__(self, group: _Group, index: int) -> None:
        self._group = group
        self._index = index
        self._counts: dict[Any, int] = {}
        self.store = group.store

    def _part(self, way: tuple[int, ...], name: str, *args: Any) -> _Exchange:
        """Take part in the next exchange of its kind: from one member to one, or of all."""
        count = self._counts[way] = self._counts.get(way, 0) + 1
        parties = way or range(len(self._group.members))
        return self._group.take_part((way, count), parties, self._index, name, args)

    def send(self, tensors: list[Any], peer: int, tag: int) -> _Exchange:
        return self._part((self._index, peer), "send", tensors, peer, tag)

    def recv(self, tensors: list[Any], peer: int, tag: int) -> _Exchange:
        return self._part((peer, self._index), "recv", tensors, peer, tag)

    allreduce = partialmethod(_part, (), "allreduce")
    alltoall_base = partialmethod(_part, (), "alltoall_base")
    _allgather_base = partialmethod(_part, (), "_allgather_base")


class _Engine:
    """The groups of one engine, and why ranks are gone that have ended."""

    def __init__(self) -> None:
        self.groups: dict[str, _Group] = {}
        self.gone: dict[int, str] = {}

    def lose(self, gone: dict[int, str]) -> None:
        self.gone.update(gone)
        for group in list(self.groups.values()):
            group.end_what_waits()


_engines: dict[str, _Engine] = {}


def begin(engine: str) -> None:
    """An engine has ranks in this process."""
    _engines[engine] = _Engine()


def place(engine: str, key: str, members: tuple[int, ...], index: int) -> Place:
    """The place of one member in a group, which the first that comes makes.

    Raises:
        RuntimeError: The engine has ended.
    """
    with _lock:
        if engine not in _engines:
            raise RuntimeError("the tensor engine has ended")
        found = _engines[engine]
        if key not in found.groups:
            found.groups[key] = _Group(members, found.gone)
        return Place(found.groups[key], index)


def note_end(engine: str, rank: int) -> None:
    """A rank has ended: no other needs to wait for it."""
    found = _engines.get(engine)
    if found is not None:
        found.lose({rank: f"rank {rank} has ended"})


def end(engine: str) -> None:
    """The engine has ended."""
    found = _engines.pop(engine, None)
    if found is not None:
        members = {rank for group in found.groups.values() for rank in group.members}
        found.lose(dict.fromkeys(members, "the tensor engine has ended"))


def refuse(mesh: Any, why: str, instead: str = "") -> None:
    """Raises NotImplementedError: the ranks of a mesh are in this process, where this can't be.

    Args:
        mesh: The mesh.
        why: What needs a process for each rank.
        instead: What there is here in its place.
    """
    if mesh.engine.in_process:
        raise NotImplementedError(
            f"{mesh!r} is of monarch.testing.local(), and {why}: {instead and f'use {instead}, or '}"
            "spawn procs on the real this_host()"
        )


class PerProc(Generic[T]):
    """A thing for each proc of this process; of which a real one is the only one.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._all: WeakKeyDictionary[Any, T] = WeakKeyDictionary()

    def __call__(self, hub: Any = None) -> T:
        """That of the proc of a hub, by default of the calling thread's."""
        hub = hub or current_hub()
        found = self._all.get(hub)
        return self._all.setdefault(hub, self._make()) if found is None else found

    def __bool__(self) -> bool:
        # a program that has no context needs none for this
        return bool(self._all and self())
