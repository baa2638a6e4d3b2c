"""Recorded functions.

Their instructions are kept on the workers, and later calls replay them with one message per rank.

The first call with arguments of a kind runs the function and records its instructions; the second
runs it again and compares; from then on the function is not run any more. What a recording depends
on makes up its *kind*: the metadata of tensors, which of them share memory, all other arguments,
the active mesh and stream. Tensors that the function takes from elsewhere, its *captures*, are part
of the recording, and are checked at each replay as operations would be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import torch
from torch.utils import _pytree as pytree

from .. import call_sites
from ..controller.engine import Ranks, holder
from ..instructions import PROGRAM, REPLAY, Program
from ..lru import LRU
from ..planning import settings
from ..planning.fakes import Meta
from ..tensors import operand_checks
from ..tensors.activation import active_mesh
from ..tensors.streams import active
from ..tensors.tensor import Tensor, handle, new_value, view_of
from ..tensors.tensor_base import Storage, Value
from ..trees import filled
from .recorder import Recorder, Shown

P = ParamSpec("P")
R = TypeVar("R")
_KINDS = 256  # of arguments of one function that have a recording


class _Given(NamedTuple):
    """A result that is an argument, or another handle of it, as ``detach()`` gives.

    Attributes:
        argument: Its position among the tensors.
        itself: Whether it is the argument.
    """

    argument: int
    itself: bool


class _Made(NamedTuple):
    """A result that is made by each replay.

    Attributes:
        id: When it was recorded.
        storage: Tells which results share memory.
        shares: Position of the formal that it shares memory with, or None.
    """

    id: int
    mesh: Any
    lane: Ranks
    meta: Meta
    storage: int
    shares: int | None


class _Part(NamedTuple):
    """The replayed part of one stream of some ranks.

    Attributes:
        lane: Where.
        number: Of the program there.
        formals: Positions among those of the recording.
        results: The same.
    """

    lane: Ranks
    number: int
    formals: tuple[int, ...]
    results: tuple[int, ...]


class _Recording:
    """One recording of a function.

    Args:
        arguments: The tensors among the arguments.
        leaves: Of the result, and
        tree: its structure.
        verify: Whether it will be compared with another one.

    Attributes:
        shown: What it is compared with; None if it was, or need not be.
    """

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        arguments: Sequence[Tensor],
        leaves: list[Any],
        tree: Any,
        verify: bool,
    ) -> None:
        self.shown = Shown(recorder) if verify else None
        self._name = name
        self._tree = tree
        self._engine: Any = recorder.engine  # None where there are no instructions
        self._streams = recorder.streams  # they live as long as this
        positions = {
            tensor._value.id: index for index, tensor in reversed(list(enumerate(arguments)))
        }
        ids = recorder.formals()
        self._formals: list[int | Value] = [positions.get(ref, recorder.used[ref]) for ref in ids]
        self._captures = [formal for formal in self._formals if isinstance(formal, Value)]
        self._pattern = self._pattern_of(arguments)
        storages = [recorder.used[ref].storage for ref in ids]
        self._written = [
            index for index, storage in enumerate(storages) if storage in recorder.written
        ]
        self._shown = [index for index, storage in enumerate(storages) if storage in recorder.shown]
        changed = recorder.changed()
        self._changed_arguments = [
            index
            for index, argument in enumerate(arguments)
            if any(argument is each for each in changed)
        ]
        # no more than their versions: a graph that they are part of may go
        self._changed_captures = [
            each.detach() for each in changed if not any(each is argument for argument in arguments)
        ]
        # of captures that results are views of
        self._bases: dict[int, Any] = {}
        self._results = [
            self._result_of(leaf, arguments, positions, recorder, storages) for leaf in leaves
        ]
        self._made = list(
            dict.fromkeys(each.id for each in self._results if isinstance(each, _Made))
        )
        self._parts = list(self._define(recorder, ids))

    def _result_of(
        self,
        leaf: Any,
        arguments: Sequence[Tensor],
        positions: dict[int, int],
        recorder: Recorder,
        storages: list[Storage],
    ) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        operand_checks.check(self._name, leaf, any_stream=True)
        if leaf.requires_grad:
            raise operand_checks.grad_error(f"the result of {self._name}", leaf)
        value = leaf._value
        if value.id in positions:
            itself = next((index for index, each in enumerate(arguments) if each is leaf), None)
            return _Given(positions[value.id], False) if itself is None else _Given(itself, True)
        if not recorder.was_made(value):
            return leaf
        shares = next(
            (index for index, storage in enumerate(storages) if storage is value.storage), None
        )
        if shares is not None and isinstance(self._formals[shares], Value):
            base = recorder.handle_of(value.storage)
            if base is not None:
                self._bases[shares] = base.detach()
        return _Made(value.id, value.mesh, value.lane, value.meta, id(value.storage), shares)

    def _define(self, recorder: Recorder, ids: list[int]) -> Iterator[_Part]:
        for lane, instructions, defined in recorder.parts():
            formals = tuple(index for index, ref in enumerate(ids) if recorder.is_on(ref, lane))
            results = tuple(index for index, ref in enumerate(self._made) if ref in defined)
            program = Program(
                instructions,
                tuple(ids[index] for index in formals),
                tuple(self._made[index] for index in results),
                tuple(position for position, index in enumerate(formals) if index in self._written),
                recorder.references,
            )
            number = next(self._engine.ids)
            self._engine.submit(self._engine.every_stream_of(lane), (PROGRAM, number, program))
            yield _Part(lane, number, formals, results)

    def fits(self, arguments: Sequence[Tensor]) -> bool:
        """Return whether the arguments share memory with captures as they did in the recording."""
        return self._pattern_of(arguments) == self._pattern

    def _pattern_of(self, arguments: Sequence[Tensor]) -> list[int | None]:
        return [
            next(
                (
                    index
                    for index, each in enumerate(self._captures)
                    if each.storage is tensor._value.storage
                ),
                None,
            )
            for tensor in arguments
        ]

    def replay(self, arguments: Sequence[Tensor]) -> Any:
        """Run it on the ranks; returns what the function returned, with tensors of its own."""
        values = [
            each if isinstance(each, Value) else arguments[each]._value for each in self._formals
        ]
        self._check(values)
        made: dict[int, Tensor] = {}
        bases: dict[int, Tensor] = {}
        results = [
            self._made_result(each, arguments, values, made, bases) for each in self._results
        ]
        ids, outputs = [value.id for value in values], [made[ref]._value.id for ref in self._made]
        site = call_sites.here()
        for lane, number, formals, given in self._parts:
            instruction = (
                REPLAY, site, number, [ids[index] for index in formals],
                [outputs[index] for index in given],
            )  # fmt: skip
            self._engine.submit(lane, instruction)
        self._note_writes(values, arguments)
        return pytree.tree_unflatten(results, self._tree)

    def _check(self, values: list[Value]) -> None:
        for value in values:
            if value.storage.barred is not None:
                operand_checks.check(self._name, handle(value), any_stream=True)
        for index in self._written:
            if values[index].storage.frozen is not None:
                operand_checks.check_write(self._name, handle(values[index]))

    def _made_result(
        self,
        result: Any,
        arguments: Sequence[Tensor],
        values: list[Value],
        made: dict[int, Tensor],
        bases: dict[int, Tensor],
    ) -> Any:
        if isinstance(result, _Given):
            return (
                arguments[result.argument] if result.itself else arguments[result.argument].detach()
            )
        if not isinstance(result, _Made):
            return result
        if result.id not in made:
            base = (
                bases[result.storage]
                if result.storage in bases
                else self._base_of(result.shares, arguments)
            )
            storage = base._value.storage if base is not None else None
            if result.shares is not None:
                storage = values[result.shares].storage
            value = new_value(result.mesh, result.meta, storage, result.lane)
            made[result.id] = bases[result.storage] = (
                handle(value) if base is None else view_of(base, value)
            )
        return made[result.id]

    def _base_of(self, shares: int | None, arguments: Sequence[Tensor]) -> Tensor | None:
        """A handle of what a result shares memory with, as a formal."""
        if shares is None:
            return None
        formal = self._formals[shares]
        return self._bases.get(shares) if isinstance(formal, Value) else arguments[formal]

    def _note_writes(self, values: list[Value], arguments: Sequence[Tensor]) -> None:
        storages = [values[index].storage for index in (*self._written, *self._shown)]
        if (held := holder()) is not None:
            held.changes(storages)
        for storage in storages:
            storage.known = None
        for tensor in (
            *(arguments[index] for index in self._changed_arguments),
            *self._changed_captures,
        ):
            torch.autograd.graph.increment_version(tensor)

    def __del__(self) -> None:
        for part in getattr(self, "_parts", ()):
            part.lane.freed.append((part.lane, (PROGRAM, part.number, None)))


class Recorded:
    """A function that is recorded and replayed; made by `record`."""

    def __init__(self, function: Callable[..., Any], verify: bool) -> None:
        self._function = function
        self._verify = verify
        self._recordings: LRU[Any, list[_Recording]] = LRU(_KINDS)
        functools.update_wrapper(self, function)
        self._name = getattr(function, "__qualname__", repr(function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(holder(), Recorder):  # part of another recording
            return self._function(*args, **kwargs)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        tensors = self._check(leaves)
        key = self._kind(leaves, tree)
        kept = self._recordings.get(key) or []
        found = next((each for each in kept if each.fits(tensors)), None)
        if found is None:
            found = self._record(leaves, tree, tensors)
            self._recordings[key] = [*kept, found]
        elif found.shown is not None:
            self._compare(found, found.shown, leaves, tree, tensors)
        return found.replay(tensors)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: each instance has recordings of its own."""
        return self if instance is None else functools.partial(self, instance)

    def _check(self, leaves: list[Any]) -> list[Tensor]:
        tensors: list[Any] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        for tensor in tensors:
            operand_checks.check(self._name, tensor, any_stream=True)
            if tensor.requires_grad:
                raise operand_checks.grad_error(f"{self._name}, which is recorded,", tensor)
        return tensors

    def _kind(self, leaves: list[Any], tree: Any) -> Any:
        parts: list[Any] = [
            tree, active_mesh(), active.get().number, torch.is_grad_enabled(), settings.current(),
            *map(torch.is_autocast_enabled, ("cpu", "cuda")),
            *map(torch.get_autocast_dtype, ("cpu", "cuda")),
        ]  # fmt: skip
        seen: list[tuple[Value, Storage]] = []
        for leaf in leaves:
            parts.append(type(leaf))
            if isinstance(leaf, Tensor):
                value = leaf._value
                same = next((index for index, (each, _) in enumerate(seen) if each is value), None)
                alias = next(
                    (index for index, (_, each) in enumerate(seen) if each is value.storage), None
                )
                parts += [value.meta, value.mesh, value.lane, same, alias]
                seen.append((value, value.storage))
            else:
                # 0.0 == -0.0, and nan is never the same
                parts.append(leaf.hex() if type(leaf) is float else leaf)
        try:
            hash(tuple(parts))
        except TypeError as error:
            raise TypeError(
                f"arguments of {self._name}, which is recorded, are tensors or can be hashed:"
                f" {error}"
            ) from None
        return tuple(parts)

    def _run(self, leaves: list[Any], tree: Any, stand_ins: list[Tensor]) -> tuple[Recorder, Any]:
        args, kwargs = filled(leaves, tree, torch.Tensor, stand_ins)
        recorder = Recorder(stand_ins)
        with recorder.installed():
            result = self._function(*args, **kwargs)
            if recorder.moved_elsewhere():
                raise NotImplementedError(
                    f"{self._name} changes the shape of a tensor from elsewhere in place, or sets"
                    " its data, which can't be replayed"
                )
        return recorder, result

    def _record(self, leaves: list[Any], tree: Any, tensors: list[Tensor]) -> _Recording:
        with _standing_in(tensors) as stand_ins:
            recorder, result = self._run(leaves, tree, stand_ins)
            try:
                return _Recording(
                    self._name, recorder, stand_ins, *pytree.tree_flatten(result), self._verify
                )
            finally:
                recorder.void(
                    f"it was made in {self._name}, which is recorded and does not return it"
                )

    def _compare(
        self, found: _Recording, shown: Shown, leaves: list[Any], tree: Any, tensors: list[Tensor]
    ) -> None:
        with _standing_in(tensors) as stand_ins:
            recorder, _ = self._run(leaves, tree, stand_ins)
        recorder.void(f"it was made in {self._name}, which is recorded and does not return it")
        text = shown.difference(recorder)
        if text:
            raise RuntimeError(
                f"{self._name} diverges from its recording, so it can't be replayed: run again with"
                f" the same arguments, it did something else. (-: recorded, +: now)\n{text}"
            )
        found.shown = None

    def __repr__(self) -> str:
        return f"<recorded {self._name}>"


@contextmanager
def _standing_in(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Handles for a function that is being recorded to take in place of its arguments.

    They are of values of their own, of which no rank hears: so a tensor that is an argument, and is
    taken from elsewhere as well, is two things to a recording. In the end they are handles of the
    arguments, as the function may have kept them.
    """
    values: dict[int, Value] = {}
    handles: dict[int, Tensor] = {}
    for tensor in tensors:
        value = tensor._value
        if value.id not in values:
            number = next(value.mesh.engine.ids)
            values[value.id] = Value(number, value.mesh, value.lane, value.meta, value.storage)
        if id(tensor) not in handles:
            with tensor.stream.activate():
                made: Any = tensor.detach()
            made._value = values[value.id]
            handles[id(tensor)] = made
    try:
        yield [handles[id(tensor)] for tensor in tensors]
    finally:
        for tensor in tensors:
            handles[id(tensor)]._value = tensor._value


@overload
def record(function: Callable[P, R], verify: bool = ...) -> Callable[P, R]: ...
@overload
def record(
    function: None = ..., verify: bool = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def record(function: Any = None, verify: bool = True) -> Any:
    """Record a function when it is first called, and replay it from then on.

    Use ``@record`` or ``record(f)``.

    A replay costs one message per rank, however many operations it has; what the function does
    besides issuing operations, it does while it is recorded and not again. There is a recording for
    each kind of arguments: for each combination of the metadata of tensors, of which of them share
    memory, and of the values of all other arguments.

    Arguments and results must not require gradients; tensors that the function takes from elsewhere
    may, and a whole step of training can be recorded. What it makes and does not return can't be
    used after it. An error on a rank fails all results, and all that the function writes to.

    Args:
        function: The function; None where this is used as ``@record(verify=False)``.
        verify: Run the function a second time, when it is called the second time, and compare.

    Returns:
        The function that records and replays.

    Raises:
        TypeError: An argument that is no tensor can't be hashed; a tensor requires a gradient, or
            can't be used.
        RuntimeError: The second time it did something else.
        NotImplementedError: It fetches something, or sends a tensor to an actor.
    """
    if function is None:
        return lambda function: Recorded(function, verify)
    if not callable(function):
        raise TypeError(f"record takes a function, got {function!r}")
    return Recorded(function, verify)
