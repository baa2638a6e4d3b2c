"""What one stream of a worker does: runs instructions in the order in which they come, and keeps their values.

What fails leaves a `Poison` in place of its results and of what it was to change; whatever reads a poison is not run and
leaves the same poison. Everything else goes on.

A runner works where messages are read, or, once the engine is *spread*, on a thread of its own: then what reads messages only
hands them out, and no stream holds up another. Streams share no values but those that `stream_rendezvous` pass on.

What ends the wait of such a thread for work: work, or the end of the worker.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._core.wire import pickling
from . import worker_collectives
from .functions import find, name_of
from .instructions import (
    CALL,
    CONSTANT,
    DEFINE,
    FORGET,
    FREE,
    MAIN,
    MOVE,
    PROGRAM,
    REPLAY,
    SMALL,
    UNPACK,
    Call,
    Expected,
    Found,
    Instruction,
    Poison,
    Program,
    Told,
    first_poison,
    leaves,
)
from .programs import Compiled, Template
from .stream_rendezvous import Rendezvous

_here = threading.local()


class Shared:
    """What the streams of a worker have in common.

    Attributes:
        rank: The worker's, in the engine.
        uid: The engine's id.
        known: The groups and routes that were defined.
        rendezvous: What one stream has for another.
        unreported: The last failure, until somebody is told of it.
        failures: Numbers them.
    """

    def __init__(self, rank: int, uid: str) -> None:
        self.rank = rank
        self.uid = uid
        self.templates: dict[int, Template] = {}
        self.programs: dict[int, Compiled] = {}
        self.known = worker_collectives.Known()
        self.rendezvous = Rendezvous()
        self.unreported: Poison | None = None
        self.failures = itertools.count(1)

    def define(self, number: int, path: str, args: Any, kwargs: Any, writes: tuple[int, ...]) -> None:
        try:
            function = find(path)
        except Exception:
            function = _later(path)  # it may be registered until it is used
        function = getattr(function, "_op", function)  # of an operator: what its `__call__` calls
        self.templates[number] = Template(path, function, args, kwargs, writes)

    def define_program(self, number: int, program: Program | None) -> None:
        if program is None:
            self.programs.pop(number, None)
        else:
            self.programs[number] = Compiled(program, self)

    def forget(self, template: int) -> None:
        for number in [number for number in list(self.templates) if number < template]:
            del self.templates[number]


def _later(path: str) -> Any:
    """Stands for an operation that is not here yet, as one of the user's, which a module of the user registers."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            function = find(path)
        except Exception as error:
            raise RuntimeError(
                f"{path} is not known here. Import the module that registers it on the ranks as well: in a function given "
                "as spawn_procs(bootstrap=...), or in a remote function"
            ) from error
        return function(*args, **kwargs)

    return call


class Runner:
    """One stream of a worker.

    Attributes:
        slots: Its values, by id.
        poisoned: Whether there was ever a poison: until then nobody looks for one.
    """

    def __init__(self, shared: Shared, stream: int) -> None:
        self.shared = shared
        self.rank = shared.rank
        self.uid = shared.uid
        self.slots: dict[int, Any] = {}
        self.poisoned = False
        self.communication = worker_collectives.Communication(
            shared.rank, f"stream{stream}" if stream != MAIN else "", shared.known
        )
        self._stream = stream
        self._inbox: SimpleQueue[Callable[[], object] | None] | None = None

    # its thread

    def do(self, work: Callable[[], object]) -> None:
        """Do something after all that came before: now, or on its thread."""
        if self._inbox is None:
            work()
        else:
            self._inbox.put(work)

    def start_thread(self, failed: Callable[[BaseException], object]) -> None:
        """From now on work on a thread.

        Args:
            failed: Told what ended it, if that was no end that anybody wanted.
        """
        if self._inbox is None:
            self._inbox = SimpleQueue()
            threading.Thread(
                target=self._serve, args=(self._inbox, failed), name=f"monarch-stream-{self._stream}", daemon=True
            ).start()

    def close(self) -> None:
        """Do nothing more; a thread ends when what it is at has ended."""
        self.slots.clear()
        self.communication.close()
        if self._inbox is not None:
            self._inbox.put(None)

    def _serve(
        self, inbox: SimpleQueue[Callable[[], object] | None], failed: Callable[[BaseException], object]
    ) -> None:
        _here.runner = self
        if self._stream != MAIN and torch.cuda.is_available():
            torch.cuda.set_stream(torch.cuda.Stream())
        try:
            while (work := inbox.get()) is not None:
                work()
                del work  # it holds messages
        except BaseException as error:
            failed(error)

    # instructions

    def run(self, batch: list[Instruction]) -> None:
        slots, templates = self.slots, self.shared.templates
        for instruction in batch:
            what = instruction[0]
            if what < 0:
                self.control(instruction)
                continue
            _, site, inputs, outputs, numbers = instruction
            try:
                values = [slots[ref] for ref in inputs]
                if self.poisoned and (poison := first_poison(values)) is not None:
                    self.give_up(inputs, outputs, templates[what].writes, poison)
                    continue
                result = templates[what].call(values, numbers)
                if type(outputs) is int:
                    slots[outputs] = result
                elif outputs:
                    for ref, leaf in zip(outputs, leaves(result), strict=True):
                        if ref:
                            slots[ref] = leaf
            except Exception as error:
                poison = self.failed(site, templates[what].path, error)
                self.give_up(inputs, outputs, templates[what].writes, poison)

    def control(self, instruction: Instruction) -> None:
        """Run an instruction that is no template."""
        what = instruction[0]
        if what == FREE:
            for ref in instruction[1]:
                self.slots.pop(ref, None)
        elif what == CONSTANT:
            data = instruction[3]
            # what lies in a message can't be resized, as an ``out=`` may have to be
            self.slots[instruction[2]] = data.clone() if data.nbytes < SMALL else data
        elif what == CALL:
            self._run_call(*instruction[1:])
        elif what == UNPACK:
            _, bundle, outputs = instruction
            for ref, leaf in zip(outputs, self.slots.pop(bundle, ()), strict=False):  # nothing where it failed
                if ref:
                    self.slots[ref] = leaf
        elif what == MOVE:
            _, site, name, args = instruction
            worker_collectives.MOVERS[name](self, site, *args)
        elif what == REPLAY:
            _, _, number, formals, results = instruction
            self.shared.programs[number].run(self, formals, results)
        elif what == PROGRAM:
            self.shared.define_program(*instruction[1:])
        elif what == DEFINE:
            self.shared.define(*instruction[1:])
        elif what == FORGET:
            self.shared.forget(instruction[1])

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
        inputs = [self.slots[ref] for ref in call.inputs]
        poison = first_poison(inputs)
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
        """The values with these ids, on the CPU, if this is the rank `wanted`; a `Poison` if one of them has failed."""
        values = [self.slots[ref] for ref in ids]
        poison = first_poison(values)
        if poison is not None:
            return self._report(poison)
        return [_portable(value) for value in values] if self.rank == wanted else None

    def invoke(self, site: int, call: Call) -> tuple[Any, Poison | None]:
        """Run a function and answer with what it returns, or with why there is nothing."""
        result, poison = self._try_call(site, call)
        if poison is not None:
            return None, self._report(poison)
        return pytree.tree_map_only(torch.Tensor, _portable, result), None

    def run_and_tell(self, site: int, call: Call, bundle: int, frozen: tuple[int, ...]) -> Told | Poison:
        """Run a function, keep the leaves of its result under one id, and answer with what they look like.

        Args:
            frozen: Ids of inputs that must not be written to. Whether the function does, nobody knows yet, so it gets copies.
        """
        lent = {ref: self.slots[ref] for ref in frozen}
        self.slots.update(copy.deepcopy(lent))  # what shares memory still does
        inputs = [self.slots[ref] for ref in call.inputs]
        versions = [getattr(value, "_version", 0) for value in inputs]
        result, poison = self._try_call(site, call)
        written = [index for index, value in enumerate(inputs) if getattr(value, "_version", 0) != versions[index]]
        self.slots.update(lent)
        if poison is not None:
            self.poison_aliases([ref for ref in map(call.inputs.__getitem__, written) if ref not in lent], poison)
            return self._report(poison)
        leaves, tree = pytree.tree_flatten(result)
        leaves = [_own(leaf) for leaf in leaves]
        found = [_looks(leaf, inputs) for leaf in leaves]
        for leaf, each in zip(leaves, found, strict=True):
            if isinstance(each, Found) and each.shares is not None and call.inputs[each.shares] in lent:
                origin = lent[call.inputs[each.shares]].untyped_storage()
                leaf.set_(origin, leaf.storage_offset(), leaf.shape, leaf.stride())  # a view of the copy
        self.slots[bundle] = leaves
        skeleton = pytree.tree_unflatten([None] * len(leaves), tree)  # trees themselves do not travel well
        return Told(skeleton, found, tuple(written))

    def finish(self) -> Poison | None:
        """An error that nobody has been told of, if there is one. It counts as told now."""
        unreported, self.shared.unreported = self.shared.unreported, None
        return unreported

    # failures

    def failed(self, site: int, function: str, error: Exception) -> Poison:
        """What stands for the results of an operation that raised."""
        self.poisoned = True
        shown = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without our own frame
        text = "".join(traceback.format_exception(type(error), error, shown))
        self.shared.unreported = poison = Poison(site, self.rank, function, text, next(self.shared.failures))
        return poison

    def _report(self, poison: Poison) -> Poison:
        if poison == self.shared.unreported:
            self.shared.unreported = None
        return poison

    def give_up(self, inputs: Sequence[int], outputs: Any, writes: Iterable[int], poison: Poison) -> None:
        """Leave a poison for what would have been made, and for the inputs at the positions `writes`."""
        for ref in (outputs,) if type(outputs) is int else outputs:
            if ref:
                self.slots[ref] = poison
        self.poison_aliases([inputs[index] for index in writes], poison)

    def poison_aliases(self, ids: Iterable[int], poison: Poison) -> None:
        """What was to be changed is lost, and with it all that shares its memory."""
        self.poison_sharing([self.slots.get(ref) for ref in ids], poison)

    def poison_sharing(self, values: Iterable[Any], poison: Poison) -> None:
        """As `poison_aliases`, for values."""
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


def here() -> Runner | None:
    """The runner whose thread this is."""
    return getattr(_here, "runner", None)


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
    leaf = _own(leaf)
    if not isinstance(leaf, torch.Tensor):
        raise TypeError(f"its propagate rule gives a tensor, the function gave {type(leaf).__name__}")
    if tuple(leaf.shape) != expected.shape or leaf.dtype != expected.dtype:
        raise ValueError(
            f"its propagate rule gives a {expected.dtype} tensor of shape {expected.shape}, the function gave {leaf.dtype} "
            f"of shape {tuple(leaf.shape)}"
        )
    return leaf


def _own(leaf: Any) -> Any:
    """A result as the rank keeps it: without history, and of a ``DTensor`` its own part."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        leaf = getattr(leaf, "to_local", lambda: leaf)()
        leaf = getattr(leaf, "wait", lambda: leaf)()  # a reduction may be under way
    return leaf.detach() if leaf.requires_grad else leaf


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


def _shapes(values: Sequence[Any]) -> list[Any]:
    """Of a value whose memory was given back, which is None, there is none."""
    return [getattr(value, "shape", None) for value in values]


def _reshaped(call: Call, args: Any, kwargs: Any, inputs: Sequence[Any], before: Sequence[Any]) -> str:
    """What is wrong where a function has changed the shape of an argument in place."""
    was, now, value = next(each for each in zip(before, _shapes(inputs), inputs, strict=True) if each[0] != each[1])
    return (
        f"{name_of(call.function)} changed the shape of its argument {_name_in(call, args, kwargs, value)} in place, from "
        f"{tuple(was)} to {tuple(now)}, and handles of it do not know: return a view of it, or a new tensor"
    )


def _name_in(call: Call, args: Any, kwargs: Any, value: Any) -> str:
    """The name of the parameter that got a tensor, or its position."""
    given: dict[Any, Any]
    try:
        given = inspect.signature(find(call.function)).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # an operator, for one
        given = {**dict(enumerate(args)), **kwargs}
    found = (name for name, arg in given.items() if any(leaf is value for leaf in pytree.tree_leaves(arg)))
    return repr(next(found, "in another object"))


def _looks(leaf: Any, inputs: Sequence[Any]) -> Found | int | None:
    """What the controller must know of a result: all of a new tensor, the position of an input, or that it is no tensor."""
    if not isinstance(leaf, torch.Tensor):
        return None
    for index, value in enumerate(inputs):
        if leaf is value:
            return index
    shares = next((index for index, value in enumerate(inputs) if _storage(value) == _storage(leaf)), None)
    shape, offset = tuple(leaf.shape), int(leaf.storage_offset())
    return Found(shape, leaf.stride(), offset, leaf.dtype, leaf.device, shares)
