"""The one-sided transfers of a process: its buffers, its leases, its threads and its open paths.

Handlers of system calls are here; they run on the poller's thread and must not block, so copying
is left to `workers`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from .._core.plane import ControlRequest, ControlService, Hub, ProcAddress, handles, subscribe
from ..errors import BackpressureError
from .errors import UnavailableError
from .grants import records
from .grants.leases import Leases
from .grants.registry import RefusedError, Registry
from .memory import HostMemory, Memory, share_with_process
from .paths.nixl_agent import NixlAgent
from .paths.workers import Workers
from .states.directories import Directories
from .states.seqlock_owner import WORDS_SIZE, Writes

if TYPE_CHECKING:
    from .paths.path import BufferLink

_REMEMBERED = 10_000  # paths that did not open


class Plane:
    """One per process, for as long as its hub lives."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.registry = Registry(hub)
        self.leases = Leases(hub)
        self.workers = Workers("monarch-rdma", hub.thread)
        self.links: weakref.WeakValueDictionary[tuple[object, ...], BufferLink] = (
            weakref.WeakValueDictionary()
        )
        self.closed: dict[tuple[object, ...], str] = {}  # paths that did not open, and why
        self.told: set[tuple[object, ...]] = set()  # warnings that were given
        # of shared states of this process, by the buffer of their words
        self._writes: dict[int, Writes] = {}
        self.registry.when_freed.append(partial(_forget, self._writes))
        self.directories = Directories(self.registry)
        self._nixl: NixlAgent | None = None
        self._starting = threading.Lock()
        # so the hub keeps it, and nothing else has to
        hub.inbound_lost_hooks.append(self._process_lost)

    def nixl(self, peer: ProcAddress) -> NixlAgent:
        """The library's agent, which takes a second to start.

        Args:
            peer: The other side; that of the first transfer says which network it is for.

        Raises:
            UnavailableError: There is none.
        """
        with self._starting:
            if self._nixl is None:
                self._nixl = NixlAgent(
                    f"{self.hub.address} {os.getpid()}", self.hub.address.host, peer.host
                )
                self.registry.when_freed.append(self._nixl.withdraw)
            return self._nixl

    def note_closed(self, key: tuple[object, ...], reason: str) -> None:
        """Note that a path did not open.

        It is not tried again, as long as few enough others did not open either.
        """
        if len(self.closed) >= _REMEMBERED:
            self.closed.clear()
        self.closed[key] = reason

    def _process_lost(self, address: ProcAddress) -> None:
        self.registry.holder_lost(address)
        for writes in list(self._writes.values()):
            writes.writer_lost(address)
        self.directories.process_lost(address)

    def atomic(self, wanted: records.Atomic) -> int | records.Refusal:
        """Change a word of a buffer of this process."""
        try:
            return self.registry.atomic(wanted)
        except RefusedError as error:
            return error.refusal

    def count_write(self, writer: ProcAddress, step: records.WriteStep) -> int | records.Refusal:
        """Count a step of a write of a shared state of this process."""
        try:
            return self._writes_of(step.claim).step(writer, step)
        except RefusedError as error:
            return error.refusal

    def _writes_of(self, claim: records.Claim) -> Writes:
        memory = self.registry.memory(claim, 0, WORDS_SIZE, write=True)
        if not isinstance(memory, HostMemory):
            raise RefusedError(records.Refusal(False, "these are no versions of a state"))
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


def plane_of(hub: Hub) -> Plane:
    """The plane of a process, made on first use."""
    plane = _planes.get(hub.address)
    if plane is None:
        with _making:
            plane = _planes.get(hub.address)
            if plane is None:
                plane = _planes[hub.address] = Plane(hub)
    return plane


# control records from processes that hold handles to memory of this one


@handles(records.Open)
def _open(service: ControlService, request: ControlRequest, record: records.Open) -> None:
    request.answer(plane_of(service.hub).registry.open(request.peer, record))


@handles(records.LeaseNews)
def _news(service: ControlService, request: ControlRequest, record: records.LeaseNews) -> None:
    plane_of(service.hub).registry.news(request.peer, record)


@handles(records.Drop)
def _drop(service: ControlService, request: ControlRequest, record: records.Drop) -> None:
    try:
        released = plane_of(service.hub).registry.drop(
            record.claim, f"it was dropped by {request.peer}"
        )
    except RefusedError as error:
        request.answer(error.refusal)
    else:
        subscribe(released, request.answer)


@handles(records.Atomic)
def _atomic(service: ControlService, request: ControlRequest, record: records.Atomic) -> None:
    request.answer(plane_of(service.hub).atomic(record))


@handles(records.WriteStep)
def _write(service: ControlService, request: ControlRequest, record: records.WriteStep) -> None:
    request.answer(plane_of(service.hub).count_write(request.peer, record))


@handles(records.Seek)
def _seek(service: ControlService, request: ControlRequest, record: records.Seek) -> None:
    plane_of(service.hub).directories.seek(request.peer, record, request.answer)


@handles(records.SeekOutcome)
def _settle(service: ControlService, request: ControlRequest, record: records.SeekOutcome) -> None:
    plane_of(service.hub).directories.settle(request.peer, record)


@handles(records.NixlRequest)
def _nixl(service: ControlService, request: ControlRequest, record: records.NixlRequest) -> None:
    plane = plane_of(service.hub)

    def offer(memory: Memory) -> Any:
        return plane.nixl(request.peer).offer(record.claim, memory)

    _offer(plane, request, record.claim, offer)


@handles(records.CudaRequest)
def _cuda(service: ControlService, request: ControlRequest, record: records.CudaRequest) -> None:
    _offer(plane_of(service.hub), request, record.claim, share_with_process)


def _offer(
    plane: Plane, request: ControlRequest, claim: records.Claim, offer: Callable[[Memory], Any]
) -> None:
    """Answer a process that will come to the memory by a path of its own."""

    def answer() -> Any:
        try:
            return offer(plane.registry.admit(request.peer, claim))
        except UnavailableError as error:
            return records.Refusal(False, str(error))

    plane.workers.submit(lambda: answer_with(request, answer))


@handles(records.Get)
def _get(service: ControlService, request: ControlRequest, record: records.Get) -> None:
    plane = plane_of(service.hub)

    def read() -> Any:
        memory = plane.registry.memory(record.claim, record.offset, record.nbytes, write=False)
        return PickleBuffer(memory.read(record.offset, record.nbytes))

    plane.workers.submit(lambda: answer_with(request, read))


@handles(records.Put)
def _put(service: ControlService, request: ControlRequest, record: records.Put) -> None:
    plane = plane_of(service.hub)

    def write() -> None:
        data = memoryview(record.data)
        memory = plane.registry.memory(record.claim, record.offset, data.nbytes, write=True)
        memory.write(record.offset, data)

    plane.workers.submit(lambda: answer_with(request, write))


def answer_with(request: ControlRequest, job: Callable[[], Any]) -> None:
    """Answer with what a job returns, on a thread of the plane."""
    try:
        request.answer(job())
    except RefusedError as error:
        request.answer(error.refusal)
    except BackpressureError:  # the asker does not read now; the answer is queued for when it does
        pass
    except Exception as error:
        request.fail(error)


# of owners of what this process holds


@handles(records.Recall)
def _recall(service: ControlService, request: ControlRequest, record: records.Recall) -> None:
    plane_of(service.hub).leases.recall(request.peer, record, request.answer)


HANDLERS = (_open, _news, _drop, _atomic, _write, _seek, _settle, _nixl, _cuda, _get, _put, _recall)
