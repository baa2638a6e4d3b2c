"""A stream of a worker: runs instructions in the order in which they come.

Their values are in `stream_state`.

A runner works where messages are read, or, once the engine is *spread*, on a thread of its own:
then what reads messages only hands them out, and no stream holds up another. Streams share no
values but those that `stream_rendezvous` pass on.

What ends the wait of such a thread for work: work, or the end of the worker.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..._core.plane import current_hub, pickling
from .. import devices, instructions
from ..instructions import leaves
from .functions import find, name_of
from .programs import Compiled
from .stream_state import Shared, StreamState, as_kept, storage_of
from .worker_collectives import MOVERS

_here = threading.local()


class Runner(StreamState):
    """One stream of a worker."""

    def __init__(self, shared: Shared, stream: int) -> None:
        super().__init__(shared, stream)
        self._stream = stream
        self._inbox: Any = None  # a queue of work; None ends it

    # its thread

    def do(self, work: Callable[[], object]) -> None:
        """Do something after all that came before: now, or on its thread."""
        if self._inbox is None:
            work()
        else:
            self._inbox.put(work)

    def start_thread(self, failed: Callable[[BaseException], object]) -> None:
        """Work on a thread from now on.

        Args:
            failed: Told what ended it, if that was no end that anybody wanted.
        """
        if self._inbox is None:
            hub = current_hub()
            self._inbox = hub.queue()
            hub.thread(
                target=self._serve,
                args=(self._inbox, failed),
                name=f"monarch-stream-{self._stream}",
            ).start()

    def close(self) -> None:
        """Do nothing more; a thread ends when what it is at has ended."""
        self.slots.clear()
        self.communication.close()
        if self._inbox is not None:
            self._inbox.put(None)

    def _serve(self, inbox: Any, failed: Callable[[BaseException], object]) -> None:
        _here.runner = self
        if self._stream != instructions.MAIN and torch.cuda.is_available():
            torch.cuda.init()
            devices.enter()
            torch.cuda.set_stream(torch.cuda.Stream())
        try:
            while (work := inbox.get()) is not None:
                work()
                del work  # it holds messages
        except BaseException as error:
            failed(error)

    # instructions

    def run(self, batch: list[instructions.Instruction]) -> None:
        slots, templates = self.slots, self.shared.templates
        for instruction in batch:
            what = instruction[0]
            if what < 0:
                self.control(instruction)
                continue
            _, site, inputs, outputs, numbers = instruction
            try:
                values = [slots[ref] for ref in inputs]
                # the flag first: while nothing has failed, an instruction costs no look at its
                # inputs
                if self.poisoned and (poison := instructions.first_poison(values)) is not None:
                    self.give_up(inputs, outputs, templates[what].writes, poison)
                    continue
                result = templates[what].call(values, numbers)
                # the most frequent case, without a list
                if type(outputs) is int:
                    slots[outputs] = result
                elif outputs:
                    for ref, leaf in zip(outputs, leaves(result), strict=True):
                        if ref:
                            slots[ref] = leaf
            except Exception as error:
                poison = self.failed(site, templates[what].path, error)
                self.give_up(inputs, outputs, templates[what].writes, poison)

    def control(self, instruction: instructions.Instruction) -> None:
        devices.enter()
        what = instruction[0]
        if what == instructions.FREE:
            for ref in instruction[1]:
                self.slots.pop(ref, None)
        elif what == instructions.CONSTANT:
            data = instruction[3]
            # what lies in a message can't be resized, as an ``out=`` may have to be
            self.slots[instruction[2]] = data.clone() if data.nbytes < instructions.SMALL else data
        elif what == instructions.CALL:
            self._run_call(*instruction[1:])
        elif what == instructions.UNPACK:
            _, bundle, outputs = instruction
            # nothing where it failed
            for ref, leaf in zip(outputs, self.slots.pop(bundle, ()), strict=False):
                if ref:
                    self.slots[ref] = leaf
        elif what == instructions.MOVE:
            _, site, name, args = instruction
            MOVERS[name](self, site, *args)
        elif what == instructions.REPLAY:
            _, _, number, formals, results = instruction
            self.shared.programs[number].run(self, formals, results)
        elif what == instructions.PROGRAM:
            _, number, program = instruction
            if program is None:
                self.shared.programs.pop(number, None)
            else:
                self.shared.programs[number] = Compiled(program, self.shared.templates)
        elif what == instructions.DEFINE:
            self.shared.define(*instruction[1:])
        elif what == instructions.FORGET:
            self.shared.forget(instruction[1])

    def _run_call(self, site: int, call: instructions.Call) -> None:
        result, poison = self._try_call(site, call)
        if poison is not None:
            self.give_up(call.inputs, call.outputs or (), (), poison)
        elif call.outputs is not None:
            self.store(site, _describe(call), call.outputs, call.expected, result)

    def _try_call(
        self, site: int, call: instructions.Call
    ) -> tuple[Any, instructions.Poison | None]:
        """The result of a function, or why there is none."""
        inputs = [self.slots[ref] for ref in call.inputs]
        poison = instructions.first_poison(inputs)
        if poison is None:
            before = _shapes(inputs)
            try:
                args, kwargs = pickling.loads(*call.payload)
                result = find(call.function)(*args, **kwargs)
                if _shapes(inputs) == before:
                    return result, None
                raise ValueError(_reshaped(call, args, kwargs, inputs, before))
            except Exception as error:
                poison = self.failed(site, _describe(call), error)
            pairs = zip(before, _shapes(inputs), inputs, strict=True)
            self.poison_sharing([value for was, now, value in pairs if was != now], poison)
        self.poison_aliases(call.writes, poison)
        return None, poison

    # questions

    def settle(self) -> None:
        """Answers when everything before it has been run."""

    def fetch(self, ids: tuple[int, ...], wanted: int) -> Any:
        """The values with these ids, on the CPU, if this is the rank `wanted`.

        It is a `Poison` if one of them has failed.
        """
        values = [self.slots[ref] for ref in ids]
        poison = instructions.first_poison(values)
        if poison is not None:
            return self._report(poison)
        if self.rank != wanted:
            return None
        self._await_gpu(values)
        return [_portable(value) for value in values]

    def invoke(self, site: int, call: instructions.Call) -> tuple[Any, instructions.Poison | None]:
        """Run a function and answer with what it returns, or with why there is nothing."""
        result, poison = self._try_call(site, call)
        if poison is not None:
            return None, self._report(poison)
        leaves = pytree.tree_leaves(result)
        self._await_gpu(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        return pytree.tree_map_only(torch.Tensor, _portable, result), None

    def run_and_tell(
        self, site: int, call: instructions.Call, bundle: int, frozen: tuple[int, ...]
    ) -> instructions.Told | instructions.Poison:
        """Run a function, keep the leaves of its result under one id, answer with their metadata.

        Args:
            site: Where the program has called it.
            call: The function and its arguments.
            bundle: The id.
            frozen: Ids of inputs that must not be written to. They are copied, as it is not known
                whether the function writes.
        """
        lent = {ref: self.slots[ref] for ref in frozen}
        self.slots.update(copy.deepcopy(lent))  # what shares memory still does
        inputs = [self.slots[ref] for ref in call.inputs]
        versions = [getattr(value, "_version", 0) for value in inputs]
        result, poison = self._try_call(site, call)
        written = [
            index
            for index, value in enumerate(inputs)
            if getattr(value, "_version", 0) != versions[index]
        ]
        self.slots.update(lent)
        if poison is not None:
            self.poison_aliases(
                [ref for ref in map(call.inputs.__getitem__, written) if ref not in lent], poison
            )
            return self._report(poison)
        leaves, tree = pytree.tree_flatten(result)
        leaves = [as_kept(leaf) for leaf in leaves]
        found = [_looks(leaf, inputs) for leaf in leaves]
        for leaf, each in zip(leaves, found, strict=True):
            if (
                isinstance(each, instructions.NewTensor)
                and each.shares is not None
                and call.inputs[each.shares] in lent
            ):
                origin = lent[call.inputs[each.shares]].untyped_storage()
                # a view of the copy
                leaf.set_(origin, leaf.storage_offset(), leaf.shape, leaf.stride())
        self.slots[bundle] = leaves
        # trees themselves do not travel well
        skeleton = pytree.tree_unflatten([None] * len(leaves), tree)
        return instructions.Told(skeleton, found, tuple(written))

    def finish(self) -> instructions.Poison | None:
        """Return an error that was not reported yet, if there is one. It counts as reported now."""
        unreported, self.shared.unreported = self.shared.unreported, None
        return unreported

    def _await_gpu(self, values: Iterable[torch.Tensor]) -> None:
        """Wait once for all that are on the GPU: see `Communication.await_gpu`."""
        if any(value.is_cuda for value in values):
            self.communication.await_gpu()

    def _report(self, poison: instructions.Poison) -> instructions.Poison:
        if poison == self.shared.unreported:
            self.shared.unreported = None
        return poison


def here() -> Runner | None:
    """Return the runner of the current thread."""
    return getattr(_here, "runner", None)


def _portable(value: torch.Tensor) -> torch.Tensor:
    """As it is sent: on the CPU, without history, and without more of its storage than it uses."""
    value = value.detach().cpu()
    if (
        value.layout is torch.strided
        and value.untyped_storage().nbytes() > value.numel() * value.element_size()
    ):
        value = value.clone()
    return value


def _describe(call: instructions.Call) -> str:
    try:
        return name_of(call.function)
    except Exception:  # it can't be found, which is the failure that is told
        return "a remote function"


def _shapes(values: Sequence[Any]) -> list[Any]:
    """The shapes of values; a value with freed memory is None, and has none."""
    return [getattr(value, "shape", None) for value in values]


def _reshaped(
    call: instructions.Call, args: Any, kwargs: Any, inputs: Sequence[Any], before: Sequence[Any]
) -> str:
    """Describe the error of a function that has changed the shape of an argument in place."""
    was, now, value = next(
        each for each in zip(before, _shapes(inputs), inputs, strict=True) if each[0] != each[1]
    )
    return (
        f"{name_of(call.function)} changed the shape of its argument"
        f" {_name_in(call, args, kwargs, value)} in place, from {tuple(was)} to {tuple(now)}, and"
        " handles of it do not know: return a view of it, or a new tensor"
    )


def _name_in(call: instructions.Call, args: Any, kwargs: Any, value: Any) -> str:
    """The name of the parameter that got a tensor, or its position."""
    given: dict[Any, Any]
    try:
        given = inspect.signature(find(call.function)).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # an operator, for one
        given = {**dict(enumerate(args)), **kwargs}
    found = (
        name
        for name, arg in given.items()
        if any(leaf is value for leaf in pytree.tree_leaves(arg))
    )
    return repr(next(found, "in another object"))


def _looks(leaf: Any, inputs: Sequence[Any]) -> instructions.NewTensor | int | None:
    """Describe a result for the controller.

    It is a new tensor, the position of an input, or None for any other object.
    """
    if not isinstance(leaf, torch.Tensor):
        return None
    for index, value in enumerate(inputs):
        if leaf is value:
            return index
    shares = next(
        (index for index, value in enumerate(inputs) if storage_of(value) == storage_of(leaf)), None
    )
    shape, offset = tuple(leaf.shape), int(leaf.storage_offset())
    return instructions.NewTensor(shape, leaf.stride(), offset, leaf.dtype, leaf.device, shares)
