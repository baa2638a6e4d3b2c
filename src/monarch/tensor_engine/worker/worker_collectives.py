"""The instructions of workers besides running functions.

They define groups, drop values, and move data between ranks.

A rank with a failed input takes part in all communication, with zeros, so that its peers do not
wait for ever; they learn that it has failed, and all of them take the failure as the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..._core.plane import current_hub
from ..groups.groups import Meeting, RankGroup
from ..instructions import Expected, Poison, first_poison
from . import engine_transfer, loans, torch_groups, worker_borrows
from .stream_state import StreamState
from .torch_groups import make_groups, note_end

_OPS = {
    "sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR,
}  # fmt: skip
_REDUCED = frozenset({
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool,
})  # fmt: skip
"""Types that backends reduce themselves. Of others each member gathers what all have."""
BITWISE = ("band", "bor", "bxor")
Routes = dict[int, tuple[int, ...]]
"""The ranks that get a tensor, by the rank that sends it."""
_FOLDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda rows: rows.sum(0, dtype=rows.dtype),
    "avg": lambda rows: _divide(rows.sum(0, dtype=rows.dtype), len(rows)),
    "product": lambda rows: rows.prod(0, dtype=rows.dtype),
    "min": lambda rows: rows.amin(0),
    "max": lambda rows: rows.amax(0),
    "band": lambda rows: functools.reduce(torch.bitwise_and, rows.unbind(0)),
    "bor": lambda rows: functools.reduce(torch.bitwise_or, rows.unbind(0)),
    "bxor": lambda rows: functools.reduce(torch.bitwise_xor, rows.unbind(0)),
}


class TensorLook(NamedTuple):
    """The looks of a tensor, for ranks that do not have it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Reduction(NamedTuple):
    """One reduction.

    Attributes:
        input: The tensor that is reduced.
        output: Where the result goes; the input itself where that is overwritten.
        write: The value that is overwritten with the result; 0 where it is a new one.
        look: Of the input.
        groups: The number of the groups, as `define` has them.
        kind: The reduction; ``"stack"`` for none.
        scatter: Each member gets its own part of the result.
        keepers: The ranks that keep the result; None for all.
    """

    input: int
    output: int
    write: int
    look: TensorLook
    groups: int
    kind: str
    scatter: bool
    keepers: tuple[int, ...] | None


def per_rank(worker: StreamState, site: int, output: int, table: dict[int, int]) -> None:
    """A scalar that differs from rank to rank."""
    worker.slots[output] = torch.tensor(table[worker.rank])


def drop(worker: StreamState, site: int, value: int) -> None:
    """Give back the memory of a value, and of all that shares it, after their last use."""
    tensor = worker.slots[value]
    if isinstance(tensor, torch.Tensor):
        worker.forget_storage(tensor)


def seed(worker: StreamState, site: int, number: int) -> None:
    """Start the random numbers of this process anew."""
    torch.manual_seed(number)


def random_state(worker: StreamState, site: int, output: int, device: str) -> None:
    """The state of this process's generator of random numbers."""
    try:
        worker.slots[output] = (torch.cuda if device == "cuda" else torch).get_rng_state()
    except Exception as error:  # this rank has no such device
        worker.slots[output] = worker.failed(site, "get_rng_state", error)


def set_random_state(worker: StreamState, site: int, state: int, device: str) -> None:
    """Let the generator go on from a state; from where it is, if that has failed."""
    found = worker.slots[state]
    if isinstance(found, torch.Tensor):
        try:
            (torch.cuda.set_rng_state if device == "cuda" else torch.set_rng_state)(found)
        except Exception as error:  # it is no state, or one of another device
            worker.poison_aliases([state], worker.failed(site, "set_rng_state", error))


def define_groups(
    worker: StreamState, site: int, number: int, meeting: Meeting, groups: list[tuple[int, ...]]
) -> None:
    """Note groups under a number; each rank needs to know only its own."""
    for members in groups:
        if worker.rank in members:
            worker.communication.known.groups[number] = (meeting, members)


def define_routes(
    worker: StreamState, site: int, number: int, meeting: Meeting, routes: Routes
) -> None:
    """Keep the routes of a transfer under a number."""
    worker.communication.known.routes[number] = (meeting, routes)


def reduce(worker: StreamState, site: int, reduction: Reduction) -> None:
    """Take part in one reduction."""
    given = worker.slots[reduction.input]
    poison = given if isinstance(given, Poison) else None
    written = worker.slots[reduction.write] if reduction.write else None
    group = None
    try:
        group = worker.communication.numbered(reduction.groups)
        look = reduction.look
        data = (
            torch.zeros(look.shape, dtype=look.dtype, device=look.device)
            if poison is not None
            else engine_transfer.as_it_reads(given)
        )
        exchange = group.start_exchange(poison, data)
        out = written if isinstance(written, torch.Tensor) else None
        result = _reduce(group, data, reduction.kind, reduction.scatter, out)
        poison = exchange.finish()
        if poison is None and out is not None and result is not out:
            result = out.copy_(result)
    except Exception as error:
        poison = worker.failed(site, f"reduce ({reduction.kind})", error)
        if group is not None:
            group.break_off(error)
    if reduction.keepers is None or worker.rank in reduction.keepers:
        worker.slots[reduction.output] = result if poison is None else poison
    if poison is not None:
        worker.poisoned = True
        if reduction.write:
            worker.poison_aliases([reduction.write], poison)


def _reduce(
    group: RankGroup, data: torch.Tensor, kind: str, scatter: bool, out: torch.Tensor | None
) -> torch.Tensor:
    """The result; in `out`, where that saves a copy."""
    backend = group.backend(data.device)
    if scatter:
        rows = torch.empty_like(data, memory_format=torch.contiguous_format)
        backend.alltoall_base(_as_bytes(rows), _as_bytes(data.contiguous()), [], []).wait()
        return rows if kind == "stack" else _FOLDS[kind](rows)
    # it is the sum of the real ones, and of the imaginary ones
    parts = data.dtype.is_complex and kind in ("sum", "avg")
    no_bits = kind in BITWISE and data.device.type != "cpu"  # NCCL has no reduction of bits
    if kind == "stack" or no_bits or not (parts or data.dtype in _REDUCED):
        stacked = data.new_empty((group.size, *data.shape))
        backend._allgather_base(_as_bytes(stacked), _as_bytes(data.contiguous())).wait()
        return stacked if kind == "stack" else _FOLDS[kind](stacked)
    if out is None or not out.is_contiguous() or out.is_conj() or out.is_neg():
        result = data.clone(memory_format=torch.contiguous_format)
    else:
        result = out if out is data else out.copy_(data)
    options = dist.AllreduceOptions()
    options.reduceOp = _OPS[kind]  # type: ignore[assignment]  # torch's types are wrong here
    backend.allreduce([torch.view_as_real(result) if parts else result], options).wait()
    return _divide(result, group.size) if kind == "avg" else result


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor, flat, as backends move it: they do not know all types."""
    return tensor.view(-1).view(torch.uint8)


def _divide(total: torch.Tensor, count: int) -> torch.Tensor:
    if total.dtype.is_floating_point or total.dtype.is_complex:
        return total.div_(count)
    return total.div_(count, rounding_mode="trunc")


def transfer(
    worker: StreamState, site: int, source: int, output: int, look: TensorLook, number: int
) -> None:
    """Take part in moving a tensor: send it, receive it, or both, or keep a copy."""
    meeting, routes = worker.communication.known.routes[number]
    rank = worker.rank
    given = worker.slots[source] if rank in routes else None
    origin = next((sender for sender, receivers in routes.items() if rank in receivers), -1)
    sends = [peer for peer in routes.get(rank, ()) if peer != rank]
    try:
        # sorted: all ranks make their groups in one order, or two would wait for each other in the
        # making of different ones
        pairs = sorted((min(rank, peer), max(rank, peer)) for peer in {*sends, origin} - {rank, -1})
        groups = {
            low + high - rank: worker.communication.of(meeting, (low, high)) for low, high in pairs
        }
        result: Any = None
        works = [_send_header(groups[peer], given) for peer in sends]
        if look.device.type == "cpu":  # at once: gloo needs no order between pairs
            works += [work for peer in sends for work in _move(groups[peer], look, send=given)]
            sends = []
        for peer, group in groups.items():  # sorted: NCCL's first call of a pair waits for both
            got = _awaited(group, look) if peer == origin else None
            works += _move(group, look, send=given if peer in sends else None, recv=got)
            result = got if peer == origin else result
        if origin == rank:
            result = given.clone() if isinstance(given, torch.Tensor) else given
        for work, _ in works:
            work.wait()
    except Exception as error:
        result = worker.failed(site, "to_mesh", error)
    if origin >= 0:
        worker.slots[output] = result
        worker.poisoned |= isinstance(result, Poison)


def send(
    worker: StreamState,
    site: int,
    source: int,
    look: TensorLook,
    number: int,
    ticket: int,
    link: str,
) -> None:
    """As the sender's part of `transfer`, where the receiver's is of another stream: `receive`."""
    meeting, routes = worker.communication.known.routes[number]
    given, receivers = worker.slots[source], routes[worker.rank]
    try:
        # first: this rank waits for it, even if the others fail
        if worker.rank in receivers:
            kept = given.clone() if isinstance(given, torch.Tensor) else given
            worker.shared.rendezvous.give(ticket, kept)
        works = [
            work
            for peer in receivers
            if peer != worker.rank
            for work in _send(_directed(worker, meeting, worker.rank, peer, link), given, look)
        ]
        for work, _ in works:
            work.wait()
    except Exception as error:
        worker.failed(site, "to_mesh", error)


def receive(
    worker: StreamState,
    site: int,
    output: int,
    look: TensorLook,
    number: int,
    ticket: int,
    link: str,
) -> None:
    """The receiver's part: see `send`."""
    meeting, routes = worker.communication.known.routes[number]
    origin = next(sender for sender, receivers in routes.items() if worker.rank in receivers)
    result: Any
    try:
        if origin == worker.rank:
            result = worker.shared.rendezvous.take(ticket)
        else:
            result = _receive(_directed(worker, meeting, origin, worker.rank, link), look)
    except Exception as error:
        result = worker.failed(site, "to_mesh", error)
    worker.slots[output] = result
    worker.poisoned |= isinstance(result, Poison)


def _directed(
    worker: StreamState, meeting: Meeting, sender: int, receiver: int, link: str
) -> RankGroup:
    """A pair for one direction, as the other is used by another thread."""
    members = (min(sender, receiver), max(sender, receiver))
    return worker.communication.of(meeting, members, f"{link}-{sender}")


_TAG = 0


def _send(group: RankGroup, given: Any, look: TensorLook) -> list[tuple[Any, Any]]:
    """Start to send; the tensors must be kept until that is done."""
    return [_send_header(group, given), *_move(group, look, send=given)]


def _send_header(group: RankGroup, given: Any) -> tuple[Any, torch.Tensor]:
    """Start to tell whether data will follow."""
    poison = given if isinstance(given, Poison) else None
    group.sent += 1
    if poison is not None:
        group.leave(f"transfer/{group.index}/{group.sent}", poison)
    header = torch.tensor([1 if poison is not None else 0])
    return group.cpu.send([header], 1 - group.index, _TAG), header


def _receive(group: RankGroup, look: TensorLook) -> Any:
    result = _awaited(group, look)
    for work, _ in _move(group, look, recv=result):
        work.wait()
    return result


def _awaited(group: RankGroup, look: TensorLook) -> Any:
    """Wait for the header; return the memory for the data, or the failure that comes instead."""
    peer = 1 - group.index
    group.received += 1
    header = torch.zeros(1, dtype=torch.int64)
    group.cpu.recv([header], peer, _TAG).wait()
    if header.item():
        return group.left(f"transfer/{peer}/{group.received}")
    return torch.empty(look.shape, dtype=look.dtype, device=look.device)


def _move(group: RankGroup, look: TensorLook, **ways: Any) -> list[tuple[Any, Any]]:
    """Start to ``send`` and ``recv`` those that are tensors; keep them until that is done."""
    moved = [
        (what, engine_transfer.as_it_reads(data).contiguous())
        for what, data in ways.items()
        if isinstance(data, torch.Tensor)
    ]
    backend: Any = group.backend(look.device) if moved else None
    swaps, works = len(moved) == 2, list[Any]()
    if look.device.type != "cpu":
        moved = [(what, _as_bytes(data)) for what, data in moved]
    if swaps:
        backend._start_coalescing()  # NCCL does one call after the other: both would wait in theirs
    try:
        works = [
            (getattr(backend, what)([data], 1 - group.index, _TAG), data) for what, data in moved
        ]
    finally:
        if swaps:  # even if one has failed, or all later calls would belong to it
            works = [(backend._end_coalescing(), moved)]
    return works


_GLANCE = 0.1  # seconds between looks at whether an actor is still there


def lend(
    worker: StreamState,
    site: int,
    ticket: int,
    actor: int,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...] | None,
    expected: tuple[Expected | None, ...],
) -> None:
    """Stand still until an actor of this process has handled a message, or has ended.

    Tensors that it returned may be kept.
    """
    given = [worker.slots[ref] for ref in inputs]
    poison = first_poison(given)
    loan = loans.loan(worker.uid, ticket)
    loan.open(poison, outputs is not None, given)
    hub = current_hub()
    error: BaseException | None = None
    while error is None and not loan.returned.wait(_GLANCE):
        fate = hub.fate(hub.address, actor)
        if fate is not None:
            error = RuntimeError(f"the actor has ended: {fate.reason}")
        torch_groups.look_for_ends(worker.uid)  # the actor may be in a collective
    loan.wait_for_queue()
    loans.forget_loan(worker.uid, ticket)
    if outputs is None:
        return
    if poison is None:
        worker.store(site, "an endpoint", outputs, expected, loan.result, error or loan.error)
    else:
        worker.give_up((), outputs, (), poison)


_ALL = (
    define_groups, define_routes, drop, lend, make_groups, note_end, per_rank, random_state, receive,
    reduce, seed, send, set_random_state, transfer, *worker_borrows.FUNCTIONS,
)  # fmt: skip
MOVERS: dict[str, Callable[..., None]] = {
    function.__name__: function for function in _ALL
} | engine_transfer.FUNCTIONS
BORROWS = frozenset(function.__name__ for function in worker_borrows.FUNCTIONS)
JOINT = BORROWS | {"receive", "reduce", "send", "transfer"}
"""What others wait for: it is done even where nothing else can be, any more."""
