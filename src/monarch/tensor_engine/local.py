"""What of tensor engines lives in this process: the workers, by the id of their engine, and what references stand for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .._core.actors.context import NotYet, context, current_node
from .._core.calls.future import running_loop
from .._core.shape import Slice
from .._core.wire import pickling
from . import torch_groups
from .errors import RemoteException
from .instructions import Poison

if TYPE_CHECKING:
    from .worker import Worker

workers: dict[str, Worker] = {}


def value(uid: str, id: int) -> Any:  # noqa: A002  # as it is called everywhere
    """Stands in pickled arguments for a tensor of an engine; gives this rank's."""
    return workers[uid].value(id)


class Loan:
    """Tensors in the hands of an actor, while the worker stands still.

    Attributes:
        keep: Whether what the actor returns is for the worker.
        result: What it returned, or
        error: what it raised.
        returned: Set when the actor has handled the message.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._callbacks: list[Callable[[], object]] = []
        self._poison: Poison | None = None
        self.keep = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.returned = threading.Event()

    def open(self, poison: Poison | None, keep: bool) -> None:
        """The worker has come to it; `poison` if one of the tensors has failed."""
        with self._lock:
            self._poison, self.keep, self._open = poison, keep, True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_open(self, callback: Callable[[], object]) -> None:
        """Call on the worker's thread, or now."""
        with self._lock:
            if not self._open:
                self._callbacks.append(callback)
                return
        callback()

    def take(self) -> None:
        """Wait for the worker; raise if one of the tensors has failed. On an event loop: raise `NotYet` rather than wait."""
        if not self._open:
            if running_loop() is not None:
                raise NotYet(self.when_open)
            opened = threading.Event()
            self.when_open(opened.set)
            opened.wait()
        context()._when_handled(self._handled)
        if self._poison is not None:
            raise RemoteException(self._poison)

    def _handled(self, result: Any, error: BaseException | None) -> Any:
        self.result, self.error = result, error
        self.returned.set()
        return None if self.keep else result


_loans: dict[tuple[str, int], Loan] = {}


def loan(uid: str, ticket: int) -> Loan:
    """The loan with a ticket: whoever comes first makes it."""
    return _loans.setdefault((uid, ticket), Loan())


def forget_loan(uid: str, ticket: int) -> None:
    """The worker goes on."""
    _loans.pop((uid, ticket), None)


def end_loans(uid: str, why: Poison) -> None:
    """The worker has ended: whoever waits for it is told."""
    for key, each in list(_loans.items()):
        if key[0] == uid:
            each.open(why, keep=False)


class Lent(NamedTuple):
    """A message with tensors in it, for an actor that lives where they do.

    Attributes:
        uid: The engine's id.
        worker: The id of the actors that are its workers.
        ticket: Of the loan.
        payload: The message, pickled, and
        buffers: its buffers.
    """

    uid: str
    worker: int
    ticket: int
    payload: Any
    buffers: list[Any]

    def __reduce__(self) -> Any:
        return _receive, tuple(self)


def _receive(uid: str, worker: int, ticket: int, payload: Any, buffers: list[Any]) -> Any:
    """Runs where the actor does, as it reads its message.

    What ends the wait: the worker comes to the instruction. It was sent before this message, and if the worker is there, it
    will; if its process ends, so does this one.
    """
    if worker not in current_node().actors:
        raise RuntimeError("the tensor engine of the tensors in this message has ended")
    loan(uid, ticket).take()
    return pickling.loads(payload, buffers)


def process_group(uid: str, number: int) -> Any:
    """Stands in pickled arguments for a process group; gives that of this rank's row."""
    return torch_groups.world(uid).group(number)


def torch_mesh(
    uid: str, device: str | None, labels: tuple[str, ...], sizes: tuple[int, ...], ranks: tuple[int, ...], numbers: Any
) -> Any:
    """Stands in pickled arguments for a mesh of `torch.distributed`."""
    found: Any = list(ranks)
    for size in reversed(sizes[1:]):
        found = [found[start : start + size] for start in range(0, len(found), size)]
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return torch_groups.world(uid).mesh(kind, labels, found, numbers)


class Dim(NamedTuple):
    """One dimension of a mesh, seen from one rank.

    Attributes:
        rank: This rank's coordinate.
        size: How many there are.
        members: The ranks that differ from this one in this coordinate only, and this one.
    """

    rank: int
    size: int
    members: list[int]


class MeshHere(NamedTuple):
    """A mesh as an argument of a remote function: seen from the rank that runs it.

    Attributes:
        dims: Each dimension.
        all_ranks: All ranks, in row-major order.
    """

    dims: dict[str, Dim]
    all_ranks: list[int]

    @property
    def ranks(self) -> dict[str, int]:
        """This rank's coordinates."""
        return {name: dim.rank for name, dim in self.dims.items()}

    @property
    def sizes(self) -> dict[str, int]:
        return {name: dim.size for name, dim in self.dims.items()}


def mesh_here(uid: str, labels: tuple[str, ...], sizes: tuple[int, ...], ranks: tuple[int, ...]) -> MeshHere:
    """Stands in pickled arguments for a mesh."""
    index = ranks.index(workers[uid].rank)
    rows = Slice.new_row_major(sizes)
    dims = {}
    for label, size, stride, coordinate in zip(labels, sizes, rows.strides, rows.coordinates(index), strict=True):
        first = index - coordinate * stride
        dims[label] = Dim(coordinate, size, list(ranks[first : first + size * stride : stride]))
    return MeshHere(dims, list(ranks))
