"""What a process has for one-sided transfers: what it owns, what it holds, its threads and its open paths.

Handlers of system calls are here; they run on the poller's thread and must not block, so whatever copies goes to `workers`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from .._core.hub.contracts import Origin
from .._core.hub.node import Node
from .._core.hub.system import System
from .._core.wire.address import ProcAddress
from .._core.wire.frame import Frame
from ..errors import BackpressureError
from .errors import UnavailableError
from .leases import Leases
from .memory import HostMemory, Memory, share_with_process
from .nixl_agent import NixlAgent
from .records import Atomic, Claim, Get, LeaseNews, NixlRequest, Open, Put, Recall, Refusal, WriteStep
from .registry import RefusedError, Registry
from .seqlock_owner import WORDS_SIZE, Writes
from .workers import Workers

if TYPE_CHECKING:
    from .paths.path import Link

_REMEMBERED = 10_000  # paths that did not open


class Plane:
    """One per process, for as long as its node lives."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.registry = Registry(node)
        self.leases = Leases(node)
        self.workers = Workers("monarch-rdma")
        self.links: weakref.WeakValueDictionary[tuple[object, ...], Link] = weakref.WeakValueDictionary()
        self.closed: dict[tuple[object, ...], str] = {}  # paths that did not open, and why
        self.told: set[tuple[object, ...]] = set()  # what was warned of
        self._writes: dict[int, Writes] = {}  # of shared states of this process, by the buffer of their words
        self.registry.when_freed.append(partial(_forget, self._writes))
        self._nixl: NixlAgent | None = None
        self._starting = threading.Lock()
        node.inbound_lost_hooks.append(self._process_lost)  # so the node keeps it, and nothing else has to

    def nixl(self, peer: ProcAddress) -> NixlAgent:
        """The library's agent, which takes a second to start.

        Args:
            peer: The other side; that of the first transfer says which network it is for.

        Raises:
            UnavailableError: There is none.
        """
        with self._starting:
            if self._nixl is None:
                self._nixl = NixlAgent(f"{self.node.address} {os.getpid()}", self.node.address.host, peer.host)
                self.registry.when_freed.append(self._nixl.withdraw)
            return self._nixl

    def note_closed(self, key: tuple[object, ...], reason: str) -> None:
        """A path did not open: it is not tried again, as long as few enough others did not open either."""
        if len(self.closed) >= _REMEMBERED:
            self.closed.clear()
        self.closed[key] = reason

    def _process_lost(self, address: ProcAddress) -> None:
        self.registry.holder_lost(address)
        for writes in list(self._writes.values()):
            writes.writer_lost(address)

    def atomic(self, wanted: Atomic) -> int | Refusal:
        """Change a word of a buffer of this process."""
        try:
            return self.registry.atomic(wanted)
        except RefusedError as error:
            return error.refusal

    def count_write(self, writer: ProcAddress, step: WriteStep) -> int | Refusal:
        """Count a step of a write of a shared state of this process."""
        try:
            return self._writes_of(step.claim).step(writer, step)
        except RefusedError as error:
            return error.refusal

    def _writes_of(self, claim: Claim) -> Writes:
        memory = self.registry.memory(claim, 0, WORDS_SIZE, write=True)
        if not isinstance(memory, HostMemory):
            raise RefusedError(Refusal(False, "these are no versions of a state"))
        writes = self._writes.get(claim.id)
        if writes is None:
            writes = self._writes.setdefault(claim.id, Writes(memory))
            try:
                self.registry.memory(claim, 0, WORDS_SIZE, write=True)
            except RefusedError:  # freed meanwhile, perhaps before there was anything to forget
                _forget(self._writes, claim.id)
                raise
        return writes


_planes: weakref.WeakValueDictionary[ProcAddress, Plane] = weakref.WeakValueDictionary()
_making = threading.Lock()


def _forget(writes: dict[int, Writes], buffer: int) -> None:
    writes.pop(buffer, None)


def plane_of(node: Node) -> Plane:
    """The plane of a process, made on first use."""
    plane = _planes.get(node.address)
    if plane is None:
        with _making:
            plane = _planes.get(node.address)
            if plane is None:
                plane = _planes[node.address] = Plane(node)
    return plane


# system calls, by those who hold handles to what is here


def _on_open(system: System, origin: Origin, frame: Frame, wanted: Open) -> None:
    system.answer(origin, frame, plane_of(system.node).registry.open(origin.peer, wanted))


def _on_news(system: System, origin: Origin, frame: Frame, news: LeaseNews) -> None:
    plane_of(system.node).registry.news(origin.peer, news)


def _on_drop(system: System, origin: Origin, frame: Frame, claim: Claim) -> None:
    try:
        released = plane_of(system.node).registry.drop(claim, f"it was dropped by {origin.peer}")
    except RefusedError as error:
        system.answer(origin, frame, error.refusal)
    else:
        released._subscribe(lambda: system.answer(origin, frame))


def _on_atomic(system: System, origin: Origin, frame: Frame, wanted: Atomic) -> None:
    system.answer(origin, frame, plane_of(system.node).atomic(wanted))


def _on_write(system: System, origin: Origin, frame: Frame, step: WriteStep) -> None:
    system.answer(origin, frame, plane_of(system.node).count_write(origin.peer, step))


def _on_nixl(system: System, origin: Origin, frame: Frame, wanted: NixlRequest) -> None:
    plane = plane_of(system.node)
    _offer(system, origin, frame, wanted.claim, lambda memory: plane.nixl(origin.peer).offer(wanted.claim, memory))


def _on_cuda(system: System, origin: Origin, frame: Frame, claim: Claim) -> None:
    _offer(system, origin, frame, claim, share_with_process)


def _offer(system: System, origin: Origin, frame: Frame, claim: Claim, offer: Callable[[Memory], Any]) -> None:
    """Answer somebody who will come to the memory in a way of its own."""
    plane = plane_of(system.node)

    def answer() -> Any:
        try:
            return offer(plane.registry.admit(origin.peer, claim))
        except UnavailableError as error:
            return Refusal(False, str(error))

    plane.workers.submit(lambda: answer_with(system, origin, frame, answer))


def _on_get(system: System, origin: Origin, frame: Frame, wanted: Get) -> None:
    plane = plane_of(system.node)

    def read() -> Any:
        memory = plane.registry.memory(wanted.claim, wanted.offset, wanted.nbytes, write=False)
        return PickleBuffer(memory.read(wanted.offset, wanted.nbytes))

    plane.workers.submit(lambda: answer_with(system, origin, frame, read))


def _on_put(system: System, origin: Origin, frame: Frame, brought: Put) -> None:
    plane = plane_of(system.node)

    def write() -> None:
        data = memoryview(brought.data)
        plane.registry.memory(brought.claim, brought.offset, data.nbytes, write=True).write(brought.offset, data)

    plane.workers.submit(lambda: answer_with(system, origin, frame, write))


def answer_with(system: System, origin: Origin, frame: Frame, job: Callable[[], Any]) -> None:
    """Answer with what a job returns, on a thread of the plane."""
    try:
        system.answer(origin, frame, job())
    except RefusedError as error:
        system.answer(origin, frame, error.refusal)
    except BackpressureError:  # whoever asked does not read; the answer is queued for when it does
        pass
    except Exception as error:
        system.answer_error(origin, frame, error)


# system calls, by owners of what this process holds


def _on_recall(system: System, origin: Origin, frame: Frame, recall: Recall) -> None:
    leases = plane_of(system.node).leases
    leases.recall(origin.peer, recall, lambda: system.answer(origin, frame))


System.handlers.update(
    rdma_open=_on_open,
    rdma_news=_on_news,
    rdma_drop=_on_drop,
    rdma_atomic=_on_atomic,
    rdma_write=_on_write,
    rdma_nixl=_on_nixl,
    rdma_cuda=_on_cuda,
    rdma_get=_on_get,
    rdma_put=_on_put,
    rdma_recall=_on_recall,
)
