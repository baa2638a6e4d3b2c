"""How distributed tensors and meshes travel.

They go as references, to workers and to actors that live where they do.

Workers find the tensor in their hands. An actor *borrows* it: its message and an instruction to the
worker, which have the same ticket, wait for each other; the worker stands still until the actor has
handled the message. Anywhere else a reference would be of no use, so pickling a distributed tensor
is an error there.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..._core.plane import Dumped, Loan, OnlyLentError, ProcAddress, extension, pickling
from .. import call_sites
from ..controller.engine import holder
from ..instructions import MOVE
from ..worker import loans, local
from . import operand_checks
from .streams import active

if TYPE_CHECKING:
    from ..controller.engine import Engine
    from .rank_mesh import RankMesh
    from .tensor_base import TensorBase


class FoundTensors:
    """The tensors met while pickling, and their engine.

    Attributes:
        tensors: The tensors.
        engine: That of the meshes and groups.
    """

    def __init__(self) -> None:
        self.tensors: list[TensorBase] = []
        self.engine: Engine | None = None


class _Collecting(threading.local):
    found: FoundTensors | None = None


_collecting = _Collecting()


@contextmanager
def collecting() -> Iterator[FoundTensors]:
    """A context in which tensors and meshes are pickled as references, and noted."""
    before, _collecting.found = _collecting.found, FoundTensors()
    try:
        yield _collecting.found
    finally:
        _collecting.found = before


class NotCopiedError(OnlyLentError):
    """A distributed tensor, or what belongs to one, is about to be pickled.

    The values are elsewhere. Only an actor that lives with them can borrow them.
    """


def lend_found(
    dump: Callable[[], Dumped], procs: Sequence[ProcAddress], actor: int
) -> Dumped | Loan:
    """Pickle a message; the tensors in it are lent to its receivers."""
    before, found = _collecting.found, FoundTensors()
    _collecting.found = found  # as `collecting`, which costs more than a call may: each passes here
    try:
        payload = dump()
    finally:
        _collecting.found = before
    if found.tensors or found.engine:
        return lend(found.tensors, payload, procs, actor, found.engine)
    return payload


extension.lend.fill(lend_found)


def lend(
    tensors: Sequence[TensorBase],
    payload: Dumped,
    procs: Sequence[ProcAddress],
    actor: int,
    engine: Engine | None = None,
    outputs: tuple[tuple[int, ...], tuple[Any, ...]] | None = None,
) -> Loan:
    """Lend the tensors in a message to an actor on some procs.

    There, instructions that are issued later wait until the actor has handled it.

    Args:
        tensors: The tensors in the message.
        payload: The message, pickled while `collecting`.
        procs: Where the actor lives.
        actor: Its number.
        engine: That of the tensors, where there are none.
        outputs: Ids for the leaves of what the actor returns, and what each is expected to be; None
            if that is not kept.

    Returns:
        What to send.

    Raises:
        ValueError: A tensor is not there.
        TensorError: They are of several streams, or one can't be used.
    """
    if holder() is not None:
        raise NotImplementedError(
            "tensors can't be sent to actors within `coalescing()` or a recorded function"
        )
    engine = tensors[0].mesh.engine if engine is None else engine
    here = dict(zip(engine.everyone.procs, engine.everyone.ranks, strict=True))
    ranks = [here.get(proc, -1) for proc in procs]
    stream = tensors[0]._value.lane.stream if tensors else active.get().number
    for tensor in tensors:
        operand_checks.check("an endpoint", tensor, any_stream=True)
        if tensor._value.lane.stream != stream:
            raise operand_checks.error("an endpoint", tensors, {}, stream=stream)
        if tensor.mesh.engine is not engine or not tensor.mesh.group.members.issuperset(ranks):
            raise ValueError(
                f"{tensor!r} must be located on the same processes as the actors that it is sent to"
            )
        tensor._value.storage.known = None  # who borrows it may write to it
    ticket = next(engine.ids)
    inputs = tuple(tensor._value.id for tensor in tensors)
    instruction = call_sites.here(), "lend", (ticket, actor, inputs, *(outputs or (None, ())))
    data, buffers = payload

    def make() -> Dumped:
        engine.submit(engine.group(ranks, stream), (MOVE, *instruction), now=True)
        views = list(map(pickle.PickleBuffer, buffers))
        return pickling.dumps(loans.Lent(engine.uid, engine.executor.target, ticket, data, views))

    return Loan(engine.lending, make)


def reduce_tensor(tensor: TensorBase) -> Any:
    """Pickle a tensor as a reference, while a message collects its tensors.

    Args:
        tensor: The tensor.

    Raises:
        NotCopiedError: No message that may hold references is being pickled.
    """
    found = _collecting.found
    if found is None:
        raise NotCopiedError(
            f"{tensor!r} can't be pickled: its values are on the ranks of its mesh. Fetch them"
            " first: monarch.inspect(tensor), or fetch_shard(tensor).get()"
        )
    found.tensors.append(tensor)
    held = holder()
    ref = tensor._value.id if held is None else held.reference(tensor._value)
    return local.value, (tensor.mesh.engine.uid, ref)


def check_collecting(what: object, engine: Engine) -> None:
    """Raise unless arguments of a function on the ranks are being pickled."""
    if _collecting.found is None:
        raise NotCopiedError(
            f"{what!r} can't be pickled: it is an argument of remote functions and of endpoints,"
            " and of nothing else"
        )
    _collecting.found.engine = engine


def reduce_mesh(mesh: RankMesh) -> Any:
    """Pickle a mesh as a reference.

    Args:
        mesh: The mesh.
    """
    check_collecting(mesh, mesh.engine)
    return local.mesh_here, (
        mesh.engine.uid,
        mesh._labels,
        tuple(mesh._ndslice.sizes),
        mesh.group.ranks,
    )
