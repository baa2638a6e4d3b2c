"""Moving tensors between engines.

One engine's workers offer them, the other's read them from memory, beside the messages.

The sender's worker takes a copy, as later writes must not be seen, names it as an `RDMABuffer`,
once for each receiver, and goes on. The receiver's worker asks the sender's process for a name,
reads the memory into a tensor of its own and drops the name; with the last of them the copy is
freed.

What ends the receiver's wait: the offer, which was issued before; the end of the sender's worker or
process; for the transfer itself, `TIMEOUT`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..._core.plane import ControlRequest, ControlService, ProcAddress, current_hub, handles
from ..groups.gloo import TIMEOUT
from ..groups.in_process import PerProc
from ..instructions import Poison
from .stream_state import StreamState

Key = tuple[str, int]  # an engine's id, and a ticket
_ENDED = "the tensor engine that it comes from has ended"


class Offers:
    """The values that this process offers to other engines.

    Message handlers look into it, so nothing here waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Key, list[Any]] = {}
        self._asking: dict[Key, list[ControlRequest]] = {}
        self._ended: set[str] = set()

    def make(self, key: Key, contents: list[Any]) -> None:
        """Offer something to each of some takers."""
        with self._lock:
            asking = self._asking.pop(key, [])
            if len(asking) < len(contents):
                self._made[key] = contents[len(asking) :]
        for request, content in zip(asking, contents, strict=False):
            request.answer(content)

    def take(self, key: Key, request: ControlRequest) -> None:
        """Answer a fetch.

        It is answered now, when the offer is made, or when that can't happen any more.
        """
        with self._lock:
            if key in self._made:
                content: Any = self._made[key].pop()
                if not self._made[key]:
                    del self._made[key]
            elif key[0] in self._ended:
                content = RuntimeError(_ENDED)
            else:
                self._asking.setdefault(key, []).append(request)
                return
        request.answer(content)

    def end(self, uid: str) -> None:
        """An engine ends: nothing of it is offered any more."""
        with self._lock:
            self._ended.add(uid)
            for key in [key for key in self._made if key[0] == uid]:
                del self._made[key]
            asking = [
                one for key in list(self._asking) if key[0] == uid for one in self._asking.pop(key)
            ]
        for request in asking:
            request.answer(RuntimeError(_ENDED))


offers = PerProc(Offers)


class TakeOffer(NamedTuple):
    """Take what a rank of another engine offers. Worker that imports ──▶ process of that rank.

    Answer: the content, when it is offered; an error if the engine ends before. A process that has
    ended offers nothing.

    Attributes:
        uid: Id of the engine.
        ticket: Of the offer.
    """

    uid: str
    ticket: int


@handles(TakeOffer)
def _take(service: ControlService, request: ControlRequest, record: TakeOffer) -> None:
    offers(service.hub).take((record.uid, record.ticket), request)


HANDLERS = (_take,)


class ShardSource(NamedTuple):
    """The place at which a rank of the destination finds its value.

    Attributes:
        uid: Id of the engine.
        ticket: Of the offers.
        procs: The process that has it, for each rank.
    """

    uid: str
    ticket: int
    procs: dict[int, ProcAddress]


def as_it_reads(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with its values in memory: ``conj()`` and others only take a note."""
    return tensor.resolve_conj().resolve_neg()


def export(
    worker: StreamState, site: int, source: int, ticket: int, takers: dict[int, int]
) -> None:
    """Offer a value to other engines' workers: a rank to as many as `takers` says."""
    given, count = worker.slots[source], takers[worker.rank]
    contents: list[Any] = [None] * count  # of an empty tensor there is nothing to move
    try:
        if isinstance(given, Poison):
            contents = [given] * count
        elif given.numel():
            copy = as_it_reads(given).clone(memory_format=torch.contiguous_format)
            # here: most programs have one engine, and start sooner without
            from ...rdma import RDMABuffer

            if copy.is_cuda:  # who reads it waits for no stream of this process
                worker.communication.await_gpu()
                torch.cuda.current_stream(copy.device).synchronize()
            contents = [RDMABuffer(copy) for _ in range(count)]
    except Exception as error:
        contents = [worker.failed(site, "to_mesh", error)] * count
    if contents:
        offers().make((worker.uid, ticket), contents)


def import_(
    worker: StreamState,
    site: int,
    output: int,
    shape: Any,
    dtype: Any,
    device: Any,
    source: ShardSource,
) -> None:
    """Fetch a value that another engine's worker offers."""
    try:
        result: Any = torch.empty(shape, dtype=dtype, device=device)
        offer = TakeOffer(source.uid, source.ticket)
        from ...rdma.grants.control_rpc import ask

        found = ask(current_hub(), source.procs[worker.rank], offer, "a tensor").get()
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Poison):
            result = found
        elif found is not None:
            if result.is_cuda:  # the memory may still be in use by earlier work
                worker.communication.await_gpu()
                torch.cuda.current_stream(result.device).synchronize()
            try:
                found.read_into(result, timeout=TIMEOUT.total_seconds()).get()
            finally:
                found.drop()
    except Exception as error:
        result = worker.failed(site, "to_mesh", error)
    worker.slots[output] = result
    worker.poisoned |= isinstance(result, Poison)


FUNCTIONS: dict[str, Callable[..., None]] = {"export": export, "import": import_}
"""The instructions of a move."""
