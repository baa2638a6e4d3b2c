"""What workers do beyond running functions: sharing out numbers, dropping, and moving data between ranks.

A rank whose input has failed takes part in all communication, with zeros, so that its peers do not wait for ever; they
learn that it has failed, and all of them take the failure as the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from .._core.runtime.context import current_node
from . import local
from .groups import Group, Meeting
from .instructions import Expected, Poison, first_poison

if TYPE_CHECKING:
    from .worker import Worker

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
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


class Look(NamedTuple):
    """What a tensor looks like, for those that have none."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Reduction(NamedTuple):
    """One reduction.

    Attributes:
        input: What is reduced.
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
    look: Look
    groups: int
    kind: str
    scatter: bool
    keepers: tuple[int, ...] | None


class Communication:
    """The groups of one worker, made as they are needed."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._defined: dict[int, tuple[Meeting, tuple[int, ...]]] = {}
        self._groups: dict[tuple[int, ...], Group] = {}
        self.routes: dict[int, tuple[Meeting, dict[int, tuple[int, ...]]]] = {}

    def define(self, number: int, meeting: Meeting, groups: list[tuple[int, ...]]) -> None:
        """Note groups under a number; each rank needs to know only its own."""
        for members in groups:
            if self._rank in members:
                self._defined[number] = (meeting, members)

    def numbered(self, number: int) -> Group:
        """This rank's group of those with a number."""
        return self.of(*self._defined[number])

    def of(self, meeting: Meeting, members: tuple[int, ...]) -> Group:
        """The group of these ranks."""
        group = self._groups.get(members)
        if group is None:
            group = self._groups[members] = Group(meeting, members, self._rank)
        return group

    def close(self) -> None:
        """Let go of all groups: their threads end with them."""
        self._groups.clear()


def per_rank(worker: Worker, site: int, output: int, table: dict[int, int]) -> None:
    """A scalar that differs from rank to rank."""
    worker.slots[output] = torch.tensor(table[worker.rank])


def drop(worker: Worker, site: int, value: int) -> None:
    """Give back the memory of a value, and of all that shares it; nobody will use them any more."""
    tensor = worker.slots[value]
    if isinstance(tensor, torch.Tensor):
        worker.forget_storage(tensor)


def seed(worker: Worker, site: int, number: int) -> None:
    """Start the random numbers of this process anew."""
    torch.manual_seed(number)


def random_state(worker: Worker, site: int, output: int, device: str) -> None:
    """The state of this process's generator of random numbers."""
    worker.slots[output] = torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


def set_random_state(worker: Worker, site: int, state: int, device: str) -> None:
    """Let the generator go on from a state; from where it is, if that has failed."""
    found = worker.slots[state]
    if isinstance(found, torch.Tensor):
        (torch.cuda.set_rng_state if device == "cuda" else torch.set_rng_state)(found)


def define_groups(worker: Worker, site: int, number: int, meeting: Meeting, groups: list[tuple[int, ...]]) -> None:
    worker.communication.define(number, meeting, groups)


def define_routes(worker: Worker, site: int, number: int, meeting: Meeting, routes: dict[int, tuple[int, ...]]) -> None:
    worker.communication.routes[number] = (meeting, routes)


def reduce(worker: Worker, site: int, reduction: Reduction) -> None:
    """Take part in one reduction."""
    given = worker.slots[reduction.input]
    poison = given if isinstance(given, Poison) else None
    written = worker.slots[reduction.write] if reduction.write else None
    try:
        group = worker.communication.numbered(reduction.groups)
        exchange = group.start_exchange(poison)
        look = reduction.look
        data = torch.zeros(look.shape, dtype=look.dtype, device=look.device) if poison is not None else given
        result = _reduce(group, data, reduction.kind, reduction.scatter)
        poison = exchange.finish()
        if poison is None and isinstance(written, torch.Tensor):
            result = written.copy_(result)
    except Exception as error:
        poison = worker.failed(site, f"reduce ({reduction.kind})", error)
    if reduction.keepers is None or worker.rank in reduction.keepers:
        worker.slots[reduction.output] = result if poison is None else poison
    if poison is not None:
        worker.poisoned = True
        if reduction.write:
            worker.poison_aliases([reduction.write], poison)


def _reduce(group: Group, data: torch.Tensor, kind: str, scatter: bool) -> torch.Tensor:
    backend = group.backend(data.device)
    if scatter:
        rows = torch.empty_like(data, memory_format=torch.contiguous_format)
        backend.alltoall_base(rows, data.contiguous(), [], []).wait()
        return rows if kind == "stack" else _FOLDS[kind](rows)
    if kind == "stack":
        stacked = data.new_empty((group.size, *data.shape))
        backend._allgather_base(stacked.view(-1), data.contiguous().view(-1)).wait()
        return stacked
    result = data.clone(memory_format=torch.contiguous_format)
    options = dist.AllreduceOptions()
    options.reduceOp = _OPS[kind]  # type: ignore[assignment]  # torch's types are wrong here
    backend.allreduce([result], options).wait()
    return _divide(result, group.size) if kind == "avg" else result


def _divide(total: torch.Tensor, count: int) -> torch.Tensor:
    if total.dtype.is_floating_point or total.dtype.is_complex:
        return total.div_(count)
    return total.div_(count, rounding_mode="trunc")


def transfer(worker: Worker, site: int, source: int, output: int, look: Look, number: int) -> None:
    """Take part in moving a tensor: send it, receive it, or both, or keep a copy."""
    meeting, routes = worker.communication.routes[number]
    rank = worker.rank
    given = worker.slots[source] if rank in routes else None
    origin = next((sender for sender, receivers in routes.items() if rank in receivers), None)
    try:
        peers = {peer for peer in routes.get(rank, ()) if peer != rank} | ({origin} - {rank, None})
        pairs = sorted((min(rank, peer), max(rank, peer)) for peer in peers if peer is not None)
        groups = {low + high - rank: worker.communication.of(meeting, (low, high)) for low, high in pairs}
        sent = [_send(groups[peer], given, look) for peer in routes.get(rank, ()) if peer != rank]
        result: Any = None
        if origin == rank:
            result = given.clone() if isinstance(given, torch.Tensor) else given
        elif origin is not None:
            result = _receive(groups[origin], look)
        for works in sent:
            for work, _ in works:
                work.wait()
    except Exception as error:
        result = worker.failed(site, "to_mesh", error)
    if origin is not None:
        worker.slots[output] = result
        worker.poisoned |= isinstance(result, Poison)


_TAG = 0


def _send(group: Group, given: Any, look: Look) -> list[tuple[Any, torch.Tensor]]:
    """Start to send; what is being sent must be kept until then."""
    poison = given if isinstance(given, Poison) else None
    group.sent += 1
    if poison is not None:
        group.leave(f"transfer/{group.index}/{group.sent}", poison)
    peer = 1 - group.index
    header = torch.tensor([1 if poison is not None else 0])
    works = [(group.cpu.send([header], peer, _TAG), header)]
    if poison is None:
        data = given.contiguous()
        works.append((group.backend(look.device).send([data], peer, _TAG), data))
    return works


def _receive(group: Group, look: Look) -> Any:
    peer = 1 - group.index
    group.received += 1
    header = torch.zeros(1, dtype=torch.int64)
    group.cpu.recv([header], peer, _TAG).wait()
    if header.item():
        return group.left(f"transfer/{peer}/{group.received}")
    data = torch.empty(look.shape, dtype=look.dtype, device=look.device)
    group.backend(look.device).recv([data], peer, _TAG).wait()
    return data


_GLANCE = 0.1  # seconds between looks at whether an actor is still there


def lend(
    worker: Worker,
    site: int,
    ticket: int,
    actor: int,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...] | None,
    expected: tuple[Expected | None, ...],
) -> None:
    """Stand still until an actor of this process has handled a message, or has ended; what it returned may be kept."""
    poison = first_poison(worker.slots[ref] for ref in inputs)
    loan = local.loan(worker.uid, ticket)
    loan.open(poison, outputs is not None)
    node = current_node()
    error: BaseException | None = None
    while error is None and not loan.returned.wait(_GLANCE):
        fate = node.fate(node.address, actor)
        if fate is not None:
            error = RuntimeError(f"the actor has ended: {fate.reason}")
    local.forget_loan(worker.uid, ticket)
    if outputs is None:
        return
    if poison is None:
        worker.store(site, "an endpoint", outputs, expected, loan.result, error or loan.error)
    else:
        worker.give_up((), outputs, (), poison)


_ALL = (define_groups, define_routes, drop, lend, per_rank, random_state, reduce, seed, set_random_state, transfer)
MOVERS: dict[str, Callable[..., None]] = {function.__name__: function for function in _ALL}
