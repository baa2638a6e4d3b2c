"""The worker: one actor per process of an engine, which holds that rank's tensors and runs what the controller issues.

It runs instructions in the order in which they come, on its own thread, and answers only when it is asked for a value.
What fails leaves a `Poison` in place of its results and of what it was to change; whatever reads a poison is not run and
leaves the same poison. Everything else goes on.

Its thread waits for messages, and in an operation for whatever that operation waits for.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._core.runtime.actor import Actor
from .._core.runtime.context import context
from .._core.runtime.endpoint import endpoint
from .._core.wire import pickling
from . import local, movers
from .functions import find, name_of
from .instructions import (
    CALL,
    CONSTANT,
    DEFINE,
    FORGET,
    FREE,
    MOVE,
    UNPACK,
    Call,
    Expected,
    Input,
    Instruction,
    Number,
    Poison,
    first_poison,
)

Template = Callable[[list[Any], tuple[Any, ...]], Any]


class Worker(Actor):
    """Args:
    uid: The engine's id.
    ranks: How many ranks it has.
    local_ranks: How many of them are on one host.
    """

    def __init__(self, uid: str, ranks: int, local_ranks: int) -> None:
        self.rank = context().actor_instance.rank.rank
        self.uid = uid
        self.slots: dict[int, Any] = {}
        self.communication = movers.Communication(self.rank)
        self._templates: dict[int, Template] = {}
        self._names: dict[int, str] = {}
        self._writes: dict[int, tuple[int, ...]] = {}
        self.poisoned = False  # whether there was ever a poison: until then nobody looks for one
        self._unreported: Poison | None = None
        _set_environment(self.rank, ranks, self.rank % local_ranks, local_ranks)
        local.workers[uid] = self

    def __cleanup__(self, error: Exception | None) -> None:
        local.workers.pop(self.uid, None)
        self.slots.clear()
        self.communication.close()

    @endpoint
    def run(self, batch: list[Instruction]) -> None:
        """One way: nobody waits for it."""
        self._run(batch)

    @endpoint
    def settle(self) -> None:
        """Answers when everything before it has been run."""

    @endpoint
    def fetch(self, ids: tuple[int, ...], wanted: int) -> Any:
        """The values with these ids, on the CPU, if this is the rank `wanted`; a `Poison` if one of them has failed."""
        values = [self.slots[ref] for ref in ids]
        poison = first_poison(values)
        if poison is not None:
            return self._report(poison)
        return [_portable(value) for value in values] if self.rank == wanted else None

    @endpoint
    def invoke(self, site: int, call: Call) -> tuple[Any, Poison | None]:
        """Run a function and answer with what it returns, or with why there is nothing."""
        result, poison = self._try_call(site, call)
        if poison is not None:
            return None, self._report(poison)
        return pytree.tree_map_only(torch.Tensor, _portable, result), None

    @endpoint
    def run_and_tell(self, site: int, call: Call, bundle: int) -> Any:
        """Run a function, keep the leaves of its result under one id, and answer with what they look like."""
        inputs = [self.slots[ref] for ref in call.inputs]
        versions = [value._version for value in inputs if isinstance(value, torch.Tensor)]
        result, poison = self._try_call(site, call)
        if poison is not None:
            return self._report(poison)
        leaves, tree = pytree.tree_flatten(result)
        self.slots[bundle] = [_without_history(leaf) for leaf in leaves]
        written = tuple(index for index, value in enumerate(inputs) if value._version != versions[index])
        skeleton = pytree.tree_unflatten([None] * len(leaves), tree)  # trees themselves do not travel well
        return skeleton, [_looks(leaf, inputs) for leaf in leaves], written

    @endpoint
    def finish(self) -> Poison | None:
        """An error that nobody has been told of, if there is one. It counts as told now."""
        unreported, self._unreported = self._unreported, None
        return unreported

    def _run(self, batch: list[Instruction]) -> None:
        slots, templates = self.slots, self._templates
        for instruction in batch:
            what = instruction[0]
            if what < 0:
                self._control(instruction)
                continue
            _, site, inputs, outputs, numbers = instruction
            try:
                values = [slots[ref] for ref in inputs]
                if self.poisoned and (poison := first_poison(values)) is not None:
                    self.give_up(inputs, outputs, self._writes[what], poison)
                    continue
                result = templates[what](values, numbers)
                if type(outputs) is int:
                    slots[outputs] = result
                elif outputs:
                    for ref, leaf in zip(outputs, _leaves(result), strict=True):
                        if ref:
                            slots[ref] = leaf
            except Exception as error:
                poison = self.failed(site, self._names[what], error)
                self.give_up(inputs, outputs, self._writes[what], poison)

    def _control(self, instruction: Instruction) -> None:
        what = instruction[0]
        if what == FREE:
            for ref in instruction[1]:
                self.slots.pop(ref, None)
        elif what == CONSTANT:
            self.slots[instruction[2]] = instruction[3]
        elif what == CALL:
            self._run_call(*instruction[1:])
        elif what == UNPACK:
            _, bundle, outputs = instruction
            for ref, leaf in zip(outputs, self.slots.pop(bundle, ()), strict=False):  # nothing where it failed
                if ref:
                    self.slots[ref] = leaf
        elif what == MOVE:
            _, site, name, args = instruction
            movers.MOVERS[name](self, site, *args)
        elif what == DEFINE:
            _, template, path, args, kwargs, writes = instruction
            self._templates[template] = compile_template(find(path), args, kwargs)
            self._names[template] = path
            self._writes[template] = writes
        elif what == FORGET:
            for number in [number for number in self._templates if number < instruction[1]]:
                del self._templates[number], self._names[number], self._writes[number]

    def _run_call(self, site: int, call: Call) -> None:
        result, poison = self._try_call(site, call)
        if poison is not None:
            self.give_up(call.inputs, call.outputs or (), (), poison)
        elif call.outputs is not None:
            self.store(site, _describe(call), call.outputs, call.expected, result)

    def store(
        self,
        site: int,
        function: str,
        outputs: tuple[int, ...],
        expected: tuple[Expected | None, ...],
        result: Any,
        error: BaseException | None = None,
    ) -> None:
        """Keep the leaves of what a function of the user has returned, if it is what was expected, or why there are none."""
        try:
            if error is not None:
                raise error
            for ref, leaf in zip(outputs, _checked(pytree.tree_leaves(result), expected), strict=True):
                if ref:
                    self.slots[ref] = leaf
        except Exception as failure:
            self.give_up((), outputs, (), self.failed(site, function, failure))

    def _try_call(self, site: int, call: Call) -> tuple[Any, Poison | None]:
        """The result of a function, or why there is none."""
        poison = first_poison(self.slots[ref] for ref in call.inputs)
        if poison is None:
            try:
                args, kwargs = pickling.loads(*call.payload)
                return find(call.function)(*args, **kwargs), None
            except Exception as error:
                poison = self.failed(site, _describe(call), error)
        self.poison_aliases(call.writes, poison)
        return None, poison

    # failures

    def failed(self, site: int, function: str, error: Exception) -> Poison:
        """What stands for the results of an operation that raised."""
        self.poisoned = True
        shown = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without our own frame
        text = "".join(traceback.format_exception(type(error), error, shown))
        self._unreported = Poison(site, self.rank, function, text)
        return self._unreported

    def _report(self, poison: Poison) -> Poison:
        if poison == self._unreported:
            self._unreported = None
        return poison

    def give_up(self, inputs: Sequence[int], outputs: Any, writes: Iterable[int], poison: Poison) -> None:
        """Leave a poison for what would have been made, and for the inputs at the positions `writes`."""
        for ref in (outputs,) if type(outputs) is int else outputs:
            if ref:
                self.slots[ref] = poison
        self.poison_aliases([inputs[index] for index in writes], poison)

    def poison_aliases(self, ids: Iterable[int], poison: Poison) -> None:
        """What was to be changed is lost, and with it all that shares its memory."""
        values = [self.slots.get(ref) for ref in ids]
        storages = {_storage(value) for value in values if isinstance(value, torch.Tensor)}
        if storages:
            for ref, value in self.slots.items():
                if isinstance(value, torch.Tensor) and _storage(value) in storages:
                    self.slots[ref] = poison

    def forget_storage(self, tensor: torch.Tensor) -> None:
        """Let go of everything that shares the memory of a tensor."""
        storage = _storage(tensor)
        for ref, value in self.slots.items():
            if isinstance(value, torch.Tensor) and _storage(value) == storage:
                self.slots[ref] = None


def compile_template(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Template:
    """A function of the inputs and the numbers. Made from text, as that is what runs fastest; the text is all ours."""
    constants: list[Any] = []

    def text(arg: Any) -> str:
        if type(arg) is Input:
            return f"v[{arg.position}]"
        if type(arg) is Number:
            return f"n[{arg.position}]"
        if type(arg) is list:
            return f"[{', '.join(map(text, arg))}]"
        if type(arg) is tuple:
            return f"({''.join(text(each) + ', ' for each in arg)})"
        constants.append(arg)
        return f"c[{len(constants) - 1}]"

    parts = [*map(text, args), *(f"{name}={text(arg)}" for name, arg in kwargs.items())]
    made: Template = eval(f"lambda v, n: f({', '.join(parts)})", {"f": function, "c": constants})
    return made


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [leaf for each in result for leaf in _leaves(each)]
    return [result]


def _checked(leaves: list[Any], expected: tuple[Expected | None, ...]) -> list[Any]:
    """The results, detached, if they are what the rule of the function has said."""
    if len(leaves) != len(expected):
        raise ValueError(
            f"unexpected number of returns: its propagate rule gives {len(expected)}, the function gave {len(leaves)}"
        )
    return [_as_expected(leaf, each) for leaf, each in zip(leaves, expected, strict=True)]


def _as_expected(leaf: Any, expected: Expected | None) -> Any:
    if expected is None:
        return leaf
    if not isinstance(leaf, torch.Tensor):
        raise TypeError(f"its propagate rule gives a tensor, the function gave {type(leaf).__name__}")
    if tuple(leaf.shape) != expected.shape or leaf.dtype != expected.dtype:
        raise ValueError(
            f"its propagate rule gives a {expected.dtype} tensor of shape {expected.shape}, the function gave {leaf.dtype} "
            f"of shape {tuple(leaf.shape)}"
        )
    return _without_history(leaf)


def _without_history(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _portable(value: torch.Tensor) -> torch.Tensor:
    """As it is sent: on the CPU, without history, and without more of its storage than it uses."""
    value = value.detach().cpu()
    if value.layout is torch.strided and value.untyped_storage().nbytes() > value.numel() * value.element_size():
        value = value.clone()
    return value


def _describe(call: Call) -> str:
    try:
        return name_of(call.function)
    except Exception:  # it can't be found, which is the failure that is told
        return "a remote function"


def _looks(leaf: Any, inputs: Sequence[Any]) -> Any:
    """What the controller must know of a result: all of a new tensor, the position of an input, or that it is no tensor."""
    if not isinstance(leaf, torch.Tensor):
        return None
    for index, value in enumerate(inputs):
        if leaf is value:
            return index
    shares = next((index for index, value in enumerate(inputs) if _storage(value) == _storage(leaf)), None)
    return tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), leaf.dtype, leaf.device, shares


def _set_environment(rank: int, ranks: int, local_rank: int, local_ranks: int) -> None:
    """What libraries of torch expect to find; and the threads of one operation are this rank's share of the host's cores.

    Else each rank takes all of them, and where operations are small, threads that wait for their turn cost tenfold.
    """
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE=str(local_ranks)
    )
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local_ranks))
    if torch.cuda.is_initialized() or not torch.cuda.is_available():
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[local_rank % len(devices)]
